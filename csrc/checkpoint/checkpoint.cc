#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>

#include "checkpoint/gguf.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/tensor_cache.h"
#include "mlc_native/config.h"
#include "model_files/model_files.h"
#include "support/config_fields.h"
#include "support/error.h"

namespace mlc_native {
namespace {

constexpr char kSingleFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";

// Files with all tensors of a folder, and what they are called as pickles.
struct SingleFile {
  const char* name;
  const char* pickle;
};
constexpr SingleFile kSingleFiles[] = {
    {kSingleFile, "pytorch_model.bin"},
    {"medusa_lm_head.safetensors", "medusa_lm_head.pt"},  // of Medusa's trainers
};

// What is no regular file is found when it is opened.
bool Exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// A pickle can run code when it is read, so it is not.
std::string AdviceForPickles(const std::string& folder) {
  const auto* const file = std::ranges::find_if(kSingleFiles, [&](const SingleFile& candidate) {
    return Exists(folder + "/" + candidate.pickle);
  });
  if (file == std::end(kSingleFiles)) return "";
  return std::string("; ") + file->pickle +
         " is not read, because reading it may run code. If its source can be trusted, convert it "
         "there: python -c \"import torch, safetensors.torch as s; s.save_file({k: "
         "v.clone().contiguous() for k, v in torch.load('" +
         file->pickle + "', weights_only=True).items()}, '" + file->name + "')\"";
}

// File -> names of its tensors.
using Shards = std::map<std::string, std::set<std::string>>;

Shards ParseIndex(const std::string& path) {
  const auto fail = [&](const std::string& what) { throw LoadError(path, path + ": " + what); };
  const ConfigFields index = ConfigFields::ReadFile(path);
  const JsonValue* weight_map = index.Find("weight_map");
  if (weight_map == nullptr || !weight_map->is_object() || weight_map->AsObject().empty()) {
    fail("is no index: \"weight_map\" must be a JSON object that is not empty");
  }
  Shards shards;
  for (const auto& [name, file] : weight_map->AsObject()) {
    if (!file.is_string()) fail("\"" + name + "\": the file name is not a string");
    const std::string& file_name = file.AsString();
    if (!IsPlainFileName(file_name)) {
      fail("\"" + name + "\": \"" + file_name + "\" is not the name of a file in this folder");
    }
    shards[file_name].insert(name);
  }
  return shards;
}

std::string FileName(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

// "a, b and 3 more"
std::string FirstOf(const std::vector<std::string>& names) {
  constexpr size_t kMaxNames = 8;
  std::string list;
  for (size_t i = 0; i < std::min(names.size(), kMaxNames); ++i) {
    list += (i > 0 ? ", " : "") + names[i];
  }
  const size_t left = names.size() - std::min(names.size(), kMaxNames);
  return left == 0 ? list : list + " and " + std::to_string(left) + " more";
}

void RequireAll(const std::string& folder, const Shards& shards) {
  std::vector<std::string> missing;
  for (const auto& [name, tensors] : shards) {
    if (!Exists(folder + "/" + name)) missing.push_back(name);
  }
  if (missing.empty()) return;
  throw LoadError(missing[0], folder + ": " + std::to_string(missing.size()) + " of the " +
                                  std::to_string(shards.size()) + " files that " + kIndexFile +
                                  " names are missing: " + FirstOf(missing));
}

bool HasAny(const std::string& folder, const Shards& shards) {
  return std::ranges::any_of(shards,
                             [&](const auto& shard) { return Exists(folder + "/" + shard.first); });
}

// "model-00001-of-00004.safetensors"
bool LooksLikeShard(const std::string& name) {
  static constexpr std::string_view kEnding = ".safetensors";
  return name.ends_with(kEnding) && name.find("-of-") != std::string::npos;
}

std::vector<std::string> FindExtraShards(const std::string& folder, const Shards& shards) {
  std::vector<std::string> extra;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool has_weights = LooksLikeShard(name) || name == kSingleFile;
    if (has_weights && !shards.contains(name)) extra.push_back(name);
  }
  std::ranges::sort(extra);
  return extra;
}

// For a folder of shards that lacks the index.
std::string AdviceForShards(const std::string& folder) {
  const std::vector<std::string> found = FindExtraShards(folder, {});
  return found.empty() ? "" : "; it has " + FirstOf(found) + ", whose index is missing";
}

}  // namespace

Checkpoint::Checkpoint(const std::string& folder, Access access) : access_(access) {
  const std::string index = folder + "/" + kIndexFile;
  const auto* const single = std::ranges::find_if(kSingleFiles, [&](const SingleFile& candidate) {
    return Exists(folder + "/" + candidate.name);
  });
  if (const std::string gguf = GgufOf(folder); !gguf.empty()) {
    files_ = ReadGguf(gguf);
  } else if (IsMlcFolder(folder)) {
    files_ = ReadTensorCache(folder);
  } else if (Exists(index)) {
    ReadIndex(folder, index);
  } else if (single != std::end(kSingleFiles)) {
    AddFile(folder + "/" + single->name);
  } else {
    throw LoadError(kSingleFile, folder + ": holds no weights (neither " + kSingleFile + " nor " +
                                     kIndexFile + ")" + AdviceForShards(folder) +
                                     AdviceForPickles(folder));
  }
  for (const TensorFile& file : files_) AddTensors(file);
}

void Checkpoint::AddTensors(const TensorFile& file) {
  for (const TensorInfo& tensor : file.tensors) {
    const auto [other, is_new] = by_name_.emplace(tensor.name, entries_.size());
    if (!is_new) {
      throw LoadError(tensor.name, file.path + ": tensor \"" + tensor.name +
                                       "\" is in another file too, " +
                                       FileName(entries_[other->second].file->path));
    }
    entries_.push_back({&tensor, &file});
    if (entries_.size() > kMaxTensors) {
      throw LoadError(file.path, file.path + ": the checkpoint has more than " +
                                     std::to_string(kMaxTensors) + " tensors, which is the limit");
    }
  }
}

void Checkpoint::AddFile(const std::string& path) { files_.push_back(ReadSafetensors(path)); }

void Checkpoint::ReadIndex(const std::string& folder, const std::string& index_path) {
  Shards shards = ParseIndex(index_path);
  // transformers leaves the index there when it saves a model as one file in place of its shards.
  const std::string single = folder + "/" + kSingleFile;
  if (!HasAny(folder, shards) && Exists(single)) return AddFile(single);
  RequireAll(folder, shards);
  extra_shards_ = FindExtraShards(folder, shards);
  for (auto& [file_name, names] : shards) {
    const std::string path = folder + "/" + file_name;
    AddFile(path);
    for (const TensorInfo& tensor : files_.back().tensors) names.erase(tensor.name);
    if (!names.empty()) {
      throw LoadError(*names.begin(), path + ": lacks tensor \"" + *names.begin() + "\", which " +
                                          kIndexFile + " promises");
    }
  }
}

const Checkpoint::Entry* Checkpoint::Find(const std::string& name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &entries_[it->second];
}

}  // namespace mlc_native

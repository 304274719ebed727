// Values of the metadata and of the tensors are tested from Python (test_gguf.py), against
// llama.cpp's package. Here, files that are wrong in a known way, and files that are wrong
// anywhere.
#include "checkpoint/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/model_defaults.h"
#include "mlc_native/config.h"
#include "mlc_native/tokenizer.h"
#include "model_files/model_files.h"
#include "support/error.h"
#include "testing/error_message.h"
#include "testing/temp_folder.h"

namespace mlc_native {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::MessageOf;
using testing::TempFolder;

template <typename T>
std::string BytesOf(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}
std::string Text(const std::string& text) { return BytesOf(uint64_t{text.size()}) + text; }

// A file of keys, and of tensors of zeros.
class GgufWriter {
 public:
  GgufWriter& Integer(const std::string& key, uint32_t value) {
    return Add(key, BytesOf(uint32_t{4}) + BytesOf(value));
  }
  GgufWriter& Float(const std::string& key, float value) {
    return Add(key, BytesOf(uint32_t{6}) + BytesOf(value));
  }
  GgufWriter& String(const std::string& key, const std::string& value) {
    return Add(key, BytesOf(uint32_t{8}) + Text(value));
  }
  GgufWriter& Strings(const std::string& key, const std::vector<std::string>& values) {
    std::string list =
        BytesOf(uint32_t{9}) + BytesOf(uint32_t{8}) + BytesOf(uint64_t{values.size()});
    for (const std::string& value : values) list += Text(value);
    return Add(key, list);
  }
  // `sizes` in the order of the file. 4 bytes per element.
  GgufWriter& Tensor(const std::string& name, const std::vector<uint64_t>& sizes) {
    tensors_ += Text(name) + BytesOf(static_cast<uint32_t>(sizes.size()));
    uint64_t bytes = 4;
    for (uint64_t size : sizes) {
      tensors_ += BytesOf(size);
      bytes *= size;
    }
    tensors_ += BytesOf(uint32_t{0}) + BytesOf(uint64_t{data_bytes_});
    data_bytes_ += (bytes + 31) / 32 * 32;
    ++num_tensors_;
    return *this;
  }

  std::string header() const {
    return "GGUF" + BytesOf(uint32_t{3}) + BytesOf(num_tensors_) + BytesOf(num_keys_) + keys_ +
           tensors_;
  }
  std::string text() const {
    std::string text = header();
    text.resize((text.size() + 31) / 32 * 32 + data_bytes_);
    return text;
  }

 private:
  GgufWriter& Add(const std::string& key, const std::string& value) {
    keys_ += Text(key) + value;
    ++num_keys_;
    return *this;
  }

  std::string keys_, tensors_;
  uint64_t num_keys_ = 0, num_tensors_ = 0;
  size_t data_bytes_ = 0;
};

GgufWriter TinyLlama() {
  GgufWriter file;
  file.String("general.architecture", "llama")
      .Integer("llama.context_length", 64)
      .Integer("llama.embedding_length", 8)
      .Integer("llama.feed_forward_length", 12)
      .Integer("llama.block_count", 1)
      .Integer("llama.attention.head_count", 2)
      .Integer("llama.attention.head_count_kv", 1)
      .Float("llama.attention.layer_norm_rms_epsilon", 1e-5f)
      .Float("llama.rope.freq_base", 1e4f)
      .String("tokenizer.ggml.model", "gpt2")
      .String("tokenizer.ggml.pre", "llama-bpe")
      .Strings("tokenizer.ggml.tokens", {"a", "b", "ab", "c"})
      .Strings("tokenizer.ggml.merges", {"a b"})
      .Integer("tokenizer.ggml.eos_token_id", 3);
  file.Tensor("token_embd.weight", {8, 4}).Tensor("output_norm.weight", {8});
  const std::string layer = "blk.0.";
  for (const char* norm : {"attn_norm", "ffn_norm"}) file.Tensor(layer + norm + ".weight", {8});
  file.Tensor(layer + "attn_q.weight", {8, 8}).Tensor(layer + "attn_k.weight", {8, 4});
  file.Tensor(layer + "attn_v.weight", {8, 4}).Tensor(layer + "attn_output.weight", {8, 8});
  file.Tensor(layer + "ffn_gate.weight", {8, 12}).Tensor(layer + "ffn_up.weight", {8, 12});
  return file.Tensor(layer + "ffn_down.weight", {12, 8});
}

// Everything that loading reads.
void ReadAllOf(const std::string& path) {
  ReadModelDefaults(path);
  ReadModelConfig(path);
  const Checkpoint checkpoint(path);
  std::vector<std::byte> data;
  for (const Checkpoint::Entry& entry : checkpoint.entries()) {
    data.resize(entry.tensor->bytes);
    entry.Open().Read(0, data);
  }
  if (HasModelFile(path + "/tokenizer.json")) {
    TokenTable::FromTokenizerJson(path + "/tokenizer.json");
  }
  HasModelFile(path + "/tokenizer_config.json");
}

class GgufTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& content) {
    folder_.Write("x.gguf", content);
    return folder_.file("x.gguf");
  }
  std::string Refused(const std::string& field, const std::string& content) {
    const std::string path = Write(content);
    return MessageOf<LoadError>(field, [&] { ReadAllOf(path); });
  }

  TempFolder folder_;
};

TEST_F(GgufTest, TensorsHaveTheNamesOfTransformers) {
  const std::string path = Write(TinyLlama().text());
  ReadAllOf(path);
  const Checkpoint checkpoint(folder_.path());  // the only file of its folder
  for (const char* name :
       {"model.embed_tokens.weight", "model.norm.weight", "model.layers.0.input_layernorm.weight",
        "model.layers.0.post_attention_layernorm.weight", "model.layers.0.mlp.gate_proj.weight"}) {
    EXPECT_NE(checkpoint.Find(name), nullptr) << name;
  }
  const TensorInfo& q = *checkpoint.Find("model.layers.0.self_attn.q_proj.weight")->tensor;
  EXPECT_EQ(q.interleaved_heads, 2);
  const TensorInfo& down = *checkpoint.Find("model.layers.0.mlp.down_proj.weight")->tensor;
  EXPECT_EQ(down.shape, (std::vector<int64_t>{8, 12}));
  const ModelConfig config = ReadModelConfig(path);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.vocab_size, 4);
  EXPECT_EQ(config.norm_eps, 1e-5f);
  EXPECT_EQ(ReadModelDefaults(path).eos_token_ids, std::vector<int32_t>{3});
}

TEST_F(GgufTest, SamplingOfItsAuthorsIsTheDefault) {
  const GenerationConfig plain = ReadModelDefaults(Write(TinyLlama().text())).generation;
  EXPECT_EQ(plain.temperature, 1);
  EXPECT_EQ(plain.top_k, 0);
  const GenerationConfig given =
      ReadModelDefaults(Write(TinyLlama()
                                  .Float("general.sampling.temp", 0.6f)
                                  .Integer("general.sampling.top_k", 20)
                                  .Float("general.sampling.top_p", 0.95f)
                                  .Float("general.sampling.min_p", 0.1f)
                                  .Float("general.sampling.penalty_repeat", 1.05f)
                                  .text()))
          .generation;
  EXPECT_EQ(given.temperature, 0.6);
  EXPECT_EQ(given.top_k, 20);
  EXPECT_EQ(given.top_p, 0.95);
  EXPECT_EQ(given.min_p, 0.1);
  EXPECT_EQ(given.repetition_penalty, 1.05);
  const std::string greedy = Write(
      TinyLlama().Float("general.sampling.temp", 0).Float("general.sampling.top_p", 0.5f).text());
  EXPECT_EQ(ReadModelDefaults(greedy).generation.temperature, 0);
  EXPECT_EQ(ReadModelDefaults(greedy).generation.top_p, 1);
  const std::string wrong = Write(TinyLlama().Float("general.sampling.top_p", 2).text());
  EXPECT_THAT(MessageOf<LoadError>("top_p", [&] { ReadModelDefaults(wrong); }),
              HasSubstr("generation_config.json"));
}

TEST_F(GgufTest, SaysWhatIsWrong) {
  const std::string path = folder_.file("x.gguf");
  EXPECT_THAT(Refused(path, "no magic"), HasSubstr("is no GGUF file"));
  EXPECT_THAT(Refused(path, ""), HasSubstr("truncated"));
  EXPECT_THAT(Refused(path, "GGUF" + BytesOf(uint32_t{1})), HasSubstr("has version 1 of GGUF"));
  EXPECT_THAT(Refused(path, "GGUF" + BytesOf(uint32_t{3} << 24)), HasSubstr("is big-endian"));
  EXPECT_THAT(Refused(path, TinyLlama().header().substr(0, 200)), HasSubstr("truncated"));
  EXPECT_THAT(Refused("token_embd.weight", TinyLlama().header()), HasSubstr("(truncated?)"));
  EXPECT_THAT(Refused("general.architecture", GgufWriter().text()),
              AllOf(HasSubstr("is not supported"), HasSubstr("llama, mistral3")));
  EXPECT_THAT(Refused("a", GgufWriter().Integer("a", 1).Integer("a", 1).text()),
              HasSubstr("\"a\" is there twice"));
  EXPECT_THAT(Refused("general.alignment", TinyLlama().Integer("general.alignment", 48).text()),
              HasSubstr("must be a power of two"));
  EXPECT_THAT(Refused("x", GgufWriter().Tensor("x", {uint64_t{1} << 40, 1 << 30}).header()),
              HasSubstr("its size overflows"));
  EXPECT_THAT(Refused("x", GgufWriter().Tensor("x", {0}).header()),
              HasSubstr("has a dimension of 0"));
  EXPECT_THAT(Refused("tokenizer.ggml.eot_token_id",
                      TinyLlama().String("tokenizer.ggml.eot_token_id", "x").text()),
              HasSubstr("must be an integer"));
}

TEST_F(GgufTest, AFolderWithSeveralModelsHasNone) {
  Write(TinyLlama().text());
  folder_.Write("y.gguf", TinyLlama().text());
  EXPECT_THAT(MessageOf<LoadError>("model", [&] { ReadModelConfig(folder_.path()); }),
              HasSubstr("holds several GGUF files, give the path of one: x.gguf, y.gguf"));
}

int64_t PeakKilobytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word != "VmHWM:") continue;
    int64_t kilobytes = 0;
    status >> kilobytes;
    return kilobytes;
  }
  return 0;
}

// Whatever the damage: a LoadError, or a file all of which can be read; in little memory.
TEST_F(GgufTest, RandomDamageNeverReadsOutside) {
  const std::string whole = TinyLlama().text();
  const size_t header_end = TinyLlama().header().size();
  const int64_t before = PeakKilobytes();
  std::minstd_rand random(7);
  int refused = 0;
  constexpr int kRounds = 300;
  for (int round = 0; round < kRounds; ++round) {
    std::string damaged = whole;
    const int edits = 1 + static_cast<int>(random() % 3);
    for (int i = 0; i < edits; ++i) {
      const size_t at = random() % header_end;
      switch (random() % 4) {
        case 0:
          damaged.erase(at, 1 + random() % 8);
          break;
        case 1:
          damaged.insert(at, 1, static_cast<char>(random()));
          break;
        case 2:  // a length that is far too large, or nearly
          damaged[at] = '\xff';
          break;
        default:
          damaged[at] = static_cast<char>(random());
      }
    }
    if (random() % 8 == 0) damaged.resize(random() % damaged.size());
    const std::string path = Write(damaged);
    try {
      ReadAllOf(path);
    } catch (const LoadError& error) {
      ++refused;
      EXPECT_FALSE(error.field().empty());
    }
  }
  EXPECT_GT(refused, kRounds / 2);
  EXPECT_LT(PeakKilobytes() - before, 64 << 10);
}

}  // namespace
}  // namespace mlc_native

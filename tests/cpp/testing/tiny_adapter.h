// Random adapters for tiny checkpoints: as folders of PEFT, and as what merging them into the
// weights of the model gives.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "testing/temp_folder.h"
#include "testing/tiny_checkpoint.h"
#include "weights/adapter_weights.h"

namespace mlc_native::testing {

class TinyAdapter {
 public:
  // Changes every module that adapters can change in a model with this config.json. Adapters of
  // different seeds have different values.
  TinyAdapter(const std::string& config, int64_t rank, unsigned seed);

  // Only modules of this name go on.
  void KeepOnly(const std::string& ending);
  void Write(const TempFolder& folder) const;
  // Adds what the adapter changes to the weights that WriteTinyCheckpoint writes.
  EditTensor Merge() const;
  size_t num_modules() const { return modules_.size(); }

 private:
  struct Module {
    int64_t rows = 0;
    int64_t columns = 0;
    bool is_transposed = false;  // as the checkpoint has the weight
    std::vector<float> down;     // [rank, columns]
    std::vector<float> up;       // [rows, rank]
  };

  float scale() const { return alpha_ / static_cast<float>(rank_); }

  int64_t rank_;
  float alpha_ = 6;
  std::map<std::string, Module> modules_;
};

}  // namespace mlc_native::testing

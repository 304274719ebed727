// DenseLayers: what a layer computes, whatever its size, and the names of activations.
#include "checkpoint/dense_layers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

namespace mlc_native::testing {
namespace {

DenseLayer Numbered(int64_t rows, int64_t columns, DenseActivation activation) {
  DenseLayer layer{.input_size = columns, .activation = activation};
  for (int64_t i = 0; i < rows * columns; ++i) {
    layer.weight.push_back(static_cast<float>(std::sin(static_cast<double>(i))));
  }
  return layer;
}

TEST(DenseLayersTest, MultipliesAnyNumberOfColumns) {
  for (const int64_t columns : {1, 7, 8, 9, 33}) {
    SCOPED_TRACE(columns);
    std::vector<DenseLayer> layers;
    layers.push_back(Numbered(3, columns, DenseActivation::kIdentity));
    layers[0].bias = {1, 2, 3};
    std::vector<double> state;
    for (int64_t i = 0; i < columns; ++i) state.push_back(std::cos(static_cast<double>(i)));
    const std::vector<float> weight = layers[0].weight;
    const DenseLayers dense(std::move(layers));
    EXPECT_EQ(dense.input_size(), columns);
    EXPECT_EQ(dense.output_size(), 3);
    const std::vector<double> found = dense.Apply(state);
    for (int64_t row = 0; row < 3; ++row) {
      double expected = static_cast<double>(row) + 1;
      for (int64_t i = 0; i < columns; ++i) expected += weight[row * columns + i] * state[i];
      EXPECT_NEAR(found[row], expected, 1e-12);
    }
  }
}

TEST(DenseLayersTest, ActivationsAreThoseOfTorch) {
  const auto result = [](DenseActivation activation, double x) {
    std::vector<DenseLayer> layers;
    layers.push_back({.input_size = 1, .weight = {1}, .activation = activation});
    return DenseLayers(std::move(layers)).Apply(std::vector<double>{x})[0];
  };
  EXPECT_EQ(result(DenseActivation::kIdentity, -2), -2);
  EXPECT_EQ(result(DenseActivation::kRelu, -2), 0);
  EXPECT_EQ(result(DenseActivation::kRelu, 2), 2);
  EXPECT_NEAR(result(DenseActivation::kTanh, 0.5), 0.46211715726, 1e-10);
  EXPECT_NEAR(result(DenseActivation::kGelu, 0.5), 0.34573123063, 1e-10);
  EXPECT_NEAR(result(DenseActivation::kSigmoid, 0.5), 0.62245933120, 1e-10);
  EXPECT_NEAR(result(DenseActivation::kSilu, 0.5), 0.31122966560, 1e-10);
}

TEST(DenseLayersTest, LayersFollowOneAnother) {
  std::vector<DenseLayer> layers;
  layers.push_back({.input_size = 1, .weight = {1, -1}, .activation = DenseActivation::kRelu});
  layers.push_back({.input_size = 2, .weight = {2, 3}, .bias = {1}});
  const DenseLayers dense(std::move(layers));
  EXPECT_EQ(dense.Apply(std::vector<double>{2}), std::vector<double>{5});
  EXPECT_EQ(dense.Apply(std::vector<double>{-2}), std::vector<double>{7});
}

TEST(DenseLayersTest, NamesOfActivations) {
  EXPECT_EQ(FindDenseActivation("torch.nn.modules.activation.Tanh"), DenseActivation::kTanh);
  EXPECT_EQ(FindDenseActivation("torch.nn.modules.linear.Identity"), DenseActivation::kIdentity);
  EXPECT_EQ(FindDenseActivation("GELU"), DenseActivation::kGelu);
  EXPECT_EQ(FindDenseActivation("torch.nn.modules.activation.Softsign"), std::nullopt);
  EXPECT_EQ(FindDenseActivation(""), std::nullopt);
}

}  // namespace
}  // namespace mlc_native::testing

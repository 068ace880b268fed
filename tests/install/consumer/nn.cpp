// A layer of heed_nn: a row of zeros stays zeros.
#include <heed/nn.hpp>
#include <heed/random.hpp>

int main() {
  heed::Generator generator(1);
  const heed::nn::Linear layer(3, 2, false, generator);
  return layer.forward(heed::Tensor({1, 3})).at<float>(0, 1) == 0 ? 0 : 1;
}

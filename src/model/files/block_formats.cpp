#include "model/files/block_formats.hpp"

namespace heed::detail {

using cpu::BlockKind;

const WeightFormat kStoredQ4_0 = {"Q4_0", 32, 18, 1, nullptr, BlockKind::q4_0};
const WeightFormat kStoredQ4_1 = {"Q4_1", 32, 20, 1, nullptr, BlockKind::q4_1};
const WeightFormat kStoredQ5_0 = {"Q5_0", 32, 22, 1, nullptr, BlockKind::q5_0};
const WeightFormat kStoredQ5_1 = {"Q5_1", 32, 24, 1, nullptr, BlockKind::q5_1};
const WeightFormat kStoredQ8_0 = {"Q8_0", 32, 34, 1, nullptr, BlockKind::q8_0};
const WeightFormat kStoredIq4Nl = {"IQ4_NL", 32, 18, 1, nullptr, BlockKind::iq4_nl};
const WeightFormat kStoredMxfp4 = {"MXFP4", 32, 17, 1, nullptr, BlockKind::mxfp4};
const WeightFormat kStoredQ2K = {"Q2_K", 256, 84, 1, nullptr, BlockKind::q2_k};
const WeightFormat kStoredQ3K = {"Q3_K", 256, 110, 1, nullptr, BlockKind::q3_k};
const WeightFormat kStoredQ4K = {"Q4_K", 256, 144, 1, nullptr, BlockKind::q4_k};
const WeightFormat kStoredQ5K = {"Q5_K", 256, 176, 1, nullptr, BlockKind::q5_k};
const WeightFormat kStoredQ6K = {"Q6_K", 256, 210, 1, nullptr, BlockKind::q6_k};
const WeightFormat kStoredIq4Xs = {"IQ4_XS", 256, 136, 1, nullptr, BlockKind::iq4_xs};

}  // namespace heed::detail

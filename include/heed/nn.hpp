// Layers, gradients and training (libheed_nn).
#pragma once

#include "heed/nn/layers.hpp"
#include "heed/nn/living_page.hpp"
#include "heed/nn/optimizer.hpp"
#include "heed/nn/train.hpp"
#include "heed/nn/train_ranks.hpp"
#include "heed/nn/trained_model.hpp"
#include "heed/nn/transformer.hpp"

// The whole of attention: calls, gradients, masks, caches.
#pragma once

#include "heed/attention/attention.hpp"
#include "heed/attention/backward.hpp"
#include "heed/attention/backward_share.hpp"
#include "heed/attention/differential.hpp"
#include "heed/attention/eviction.hpp"
#include "heed/attention/kv_cache.hpp"
#include "heed/attention/lightning_indexer.hpp"
#include "heed/attention/mask_mod.hpp"
#include "heed/attention/masks.hpp"
#include "heed/attention/part.hpp"
#include "heed/attention/plan.hpp"
#include "heed/attention/results.hpp"
#include "heed/attention/score_mod.hpp"
#include "heed/attention/sharding.hpp"
#include "heed/attention/streamed.hpp"
#include "heed/attention/targets.hpp"

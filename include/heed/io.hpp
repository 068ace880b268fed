// Files: tensors, shards, trained tokens.
#pragma once

#include "heed/io/kv_cache.hpp"
#include "heed/io/model_folder.hpp"
#include "heed/io/plan.hpp"
#include "heed/io/shards.hpp"
#include "heed/io/tensors.hpp"
#include "heed/io/trained_tokenizer.hpp"
#include "heed/io/vocabulary.hpp"

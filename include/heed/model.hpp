// Models that others trained: texts, heads, causes (libheed_model).
#pragma once

#include "heed/model/cause.hpp"
#include "heed/model/chat.hpp"
#include "heed/model/circuit.hpp"
#include "heed/model/composition.hpp"
#include "heed/model/examples.hpp"
#include "heed/model/generate.hpp"
#include "heed/model/look.hpp"
#include "heed/model/model.hpp"
#include "heed/model/paths.hpp"
#include "heed/model/tokenizer.hpp"
#include "heed/model/walk.hpp"
#include "heed/model/why.hpp"

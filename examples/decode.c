/* Decoding with a KV cache from C, printing what each step attends to. The model is that of decode.cpp. Head
 * 0 looks for the words that followed the current word before; head 1 looks for the word itself. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "heed/heed.h"

enum { kHeads = 2, kDim = 16, kTop = 3, kPrompt = 8, kSteps = 6 };

static void check(heed_status status) {
  if (status == HEED_OK) return;
  fprintf(stderr, "%s\n", heed_last_error());
  exit(1);
}

/* Embeds a word as kDim numbers of 1 and -1: the bits of its FNV-1a hash. */
static void embed(const char* word, float* numbers) {
  uint32_t hash = 2166136261u;
  int c;
  for (; *word != '\0'; ++word) hash = (hash ^ (unsigned char)*word) * 16777619u;
  for (c = 0; c < kDim; ++c) numbers[c] = (hash >> c & 1) == 1 ? 1.0f : -1.0f;
}

/* Appends the rows of words[begin], ..., words[end - 1] to the cache, as [1, heads, rows, D]. */
static void append(heed_kv_cache* cache, const char* const* words, int begin, int end) {
  static float keys[kHeads][kPrompt * kDim], values[kHeads][kPrompt * kDim];
  const int64_t shape[] = {1, kHeads, end - begin, kDim};
  heed_tensor key, value;
  int at, head;
  check(heed_tensor_init(&key, keys, HEED_F32, 4, shape));
  check(heed_tensor_init(&value, values, HEED_F32, 4, shape));
  key.strides[1] = value.strides[1] = kPrompt * kDim; /* space for the longest append */
  for (at = begin; at < end; ++at) {
    embed(at == 0 ? "" : words[at - 1], keys[0] + (at - begin) * kDim);
    embed(words[at], keys[1] + (at - begin) * kDim);
    for (head = 0; head < kHeads; ++head) embed(words[at], values[head] + (at - begin) * kDim);
  }
  check(heed_kv_cache_append(cache, &key, &value, NULL, NULL, 0));
}

/* The attention of the last word: the output of both heads, and their three largest weights. */
typedef struct attended {
  float output[kHeads][kDim], weight[kHeads][kTop];
  int64_t position[kHeads][kTop];
} attended;

static void attend(const heed_kv_cache* cache, const char* word, attended* to) {
  const int64_t rows[] = {1, kHeads, 1, kDim}, top[] = {1, kHeads, 1, kTop}, heads[] = {kHeads};
  float queries[kHeads][kDim], slope[kHeads] = {0.125f, 0.125f};
  heed_tensor query, slopes, output, position, weight;
  heed_attention_options options;
  heed_attention_outputs outputs;
  int head;
  for (head = 0; head < kHeads; ++head) embed(word, queries[head]);
  check(heed_tensor_init(&query, queries, HEED_F32, 4, rows));
  check(heed_tensor_init(&slopes, slope, HEED_F32, 1, heads));
  check(heed_tensor_init(&output, to->output, HEED_F32, 4, rows));
  check(heed_tensor_init(&position, to->position, HEED_I64, 4, top));
  check(heed_tensor_init(&weight, to->weight, HEED_F32, 4, top));
  check(heed_attention_options_init(&options));
  options.has_scale = 1;
  options.scale = 0.5;
  options.alibi_slopes = &slopes;
  check(heed_attention_outputs_init(&outputs));
  outputs.output = &output;
  outputs.top_k_index = &position;
  outputs.top_k_weight = &weight;
  check(heed_kv_cache_attention(&query, cache, &options, NULL, &outputs));
}

static void print_attended(const attended* from, int head, const char* const* words) {
  int k;
  for (k = 0; k < kTop; ++k)
    printf("  %2d %-4s%.3f", (int)from->position[head][k], words[from->position[head][k]],
           (double)from->weight[head][k]);
  printf("\n");
}

/* Returns the word that is nearest to the output of head 0. */
static const char* next_word(const float* output, const char* const* words, int count) {
  const char* nearest = NULL;
  float most = -1e30f;
  int n, c;
  for (n = 0; n < count; ++n) {
    float numbers[kDim], product = 0;
    embed(words[n], numbers);
    for (c = 0; c < kDim; ++c) product += output[c] * numbers[c];
    if (product > most) {
      most = product;
      nearest = words[n];
    }
  }
  return nearest;
}

int main(void) {
  const char* words[kPrompt + kSteps] = {"the", "cat", "sat", "on", "the", "mat", "and", "the"};
  heed_kv_cache_options options;
  heed_kv_cache_stats stats;
  heed_kv_cache* cache;
  int step;
  check(heed_kv_cache_options_init(&options));
  options.kv_heads = kHeads;
  options.head_dim = kDim;
  options.layout = HEED_CACHE_PAGED;
  options.capacity = 32;
  options.page_size = 4;
  check(heed_kv_cache_create(&options, &cache));
  append(cache, words, 0, kPrompt); /* the whole prompt at once */
  for (step = 0; step < kSteps; ++step) {
    const int last = kPrompt + step - 1;
    attended result;
    attend(cache, words[last], &result);
    printf("position %d, \"%s\"\n", last, words[last]);
    printf("  followed it:");
    print_attended(&result, 0, words);
    printf("  is the same:");
    print_attended(&result, 1, words);
    words[last + 1] = next_word(result.output[0], words, last + 1);
    printf("  next word: %s\n", words[last + 1]);
    append(cache, words, last + 1, last + 2); /* one row per step */
  }
  check(heed_kv_cache_get_stats(cache, &stats));
  printf("the cache holds %d rows in %d of %d pages\n", (int)stats.rows,
         (int)(stats.pages - stats.free_pages), (int)stats.pages);
  heed_kv_cache_free(cache);
  return 0;
}

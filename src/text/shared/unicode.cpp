#include "text/shared/unicode.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <bitset>
#include <iterator>
#include <memory>
#include <span>

namespace heed::detail {
namespace {

struct Range {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
};

constexpr std::uint32_t kPoints = 0x110000;

// Code points that did not exist in Unicode 9 (or 8) and that later versions made marks, punctuation or
// controls, or gave a decomposition. Tokenizers were trained with the categories of Unicode 8 and the normal
// forms of Unicode 9, which the Python package tokenizers still has. utf8proc has newer versions.
constexpr Range kAfterUnicode9[] = {
    {0x61D, 0x61D},     {0x7FB, 0x7FF},     {0x85F, 0x89F},     {0x8BE, 0x8D3},     {0x9FC, 0xA00},
    {0xA76, 0xA80},     {0xAFA, 0xB00},     {0xB4E, 0xB55},     {0xC04, 0xC04},     {0xC3A, 0xC3C},
    {0xC70, 0xC77},     {0xC84, 0xC84},     {0xCF3, 0xD00},     {0xD3B, 0xD3C},     {0xD80, 0xD81},
    {0xEBA, 0xEBA},     {0xECE, 0xECF},     {0x1715, 0x171F},   {0x180F, 0x180F},   {0x1ABF, 0x1AFF},
    {0x1B7D, 0x1B7F},   {0x1CF7, 0x1CF7},   {0x1DF6, 0x1DFA},   {0x2E45, 0x2E7F},   {0x32FF, 0x32FF},
    {0xA7B8, 0xA7F6},   {0xA82C, 0xA82F},   {0xA8FE, 0xA8FF},   {0xAB66, 0xAB6F},   {0x10768, 0x107FF},
    {0x10D00, 0x10E5F}, {0x10E7F, 0x10FFF}, {0x11070, 0x1107E}, {0x110C2, 0x110CF}, {0x11144, 0x1114F},
    {0x111CE, 0x111CF}, {0x1123F, 0x1127F}, {0x1133A, 0x1133B}, {0x1145A, 0x1145A}, {0x1145E, 0x1147F},
    {0x116B8, 0x116BF}, {0x11740, 0x1189F}, {0x11900, 0x11ABF}, {0x11AF9, 0x11BFF}, {0x11CB7, 0x11FFF},
    {0x12544, 0x12FFF}, {0x1342F, 0x143FF}, {0x16B90, 0x16EFF}, {0x16F45, 0x16F4F}, {0x16F7F, 0x16F8E},
    {0x16FE1, 0x16FFF}, {0x1BCA4, 0x1CFFF}, {0x1E02B, 0x1E7FF}, {0x1F16C, 0x1F16F}, {0x1F9C1, 0x1FFFD}};
constexpr Range kOnlyUnicode9[] = {
    {0x8D4, 0x8E2},     {0x1DFB, 0x1DFB},   {0x2E43, 0x2E44},   {0xA8C5, 0xA8C5},   {0x1123E, 0x1123E},
    {0x11400, 0x11459}, {0x1145B, 0x1145B}, {0x1145D, 0x1145D}, {0x11660, 0x1166C}, {0x11C0A, 0x11C36},
    {0x11C38, 0x11C45}, {0x11C70, 0x11C8F}, {0x11C92, 0x11CA7}, {0x11CA9, 0x11CB6}, {0x1E000, 0x1E006},
    {0x1E008, 0x1E018}, {0x1E01B, 0x1E021}, {0x1E023, 0x1E024}, {0x1E026, 0x1E02A}, {0x1E900, 0x1E94A},
    {0x1E95E, 0x1E95F}};

// Letters, marks and digits that Unicode 16 added, and alphabetic symbols.
constexpr Range kOtherWords[] = {
    {0x897, 0x897},     {0x1C89, 0x1C8A},   {0x24B6, 0x24E9},   {0xA7CB, 0xA7CD},   {0xA7DA, 0xA7DC},
    {0x105C0, 0x105F3}, {0x10D40, 0x10D65}, {0x10D69, 0x10D6D}, {0x10D6F, 0x10D85}, {0x10EC2, 0x10EC4},
    {0x10EFC, 0x10EFC}, {0x11380, 0x11389}, {0x1138B, 0x1138B}, {0x1138E, 0x1138E}, {0x11390, 0x113B5},
    {0x113B7, 0x113C0}, {0x113C2, 0x113C2}, {0x113C5, 0x113C5}, {0x113C7, 0x113CA}, {0x113CC, 0x113D3},
    {0x113E1, 0x113E2}, {0x116D0, 0x116E3}, {0x11BC0, 0x11BE0}, {0x11BF0, 0x11BF9}, {0x11F5A, 0x11F5A},
    {0x13460, 0x143FA}, {0x16100, 0x16139}, {0x16D40, 0x16D6C}, {0x16D70, 0x16D79}, {0x18CFF, 0x18CFF},
    {0x1CCF0, 0x1CCF9}, {0x1E5D0, 0x1E5FA}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189},
    {0x2EBF0, 0x2EE5D}};
// Digits that Unicode 16 added.
constexpr Range kOtherNumbers[] = {{0x10D40, 0x10D49}, {0x116D0, 0x116E3}, {0x11BF0, 0x11BF9},
                                   {0x11DE0, 0x11DE9}, {0x16130, 0x16139}, {0x16D70, 0x16D79},
                                   {0x16FF4, 0x16FF6}, {0x1CCF0, 0x1CCF9}, {0x1E5F1, 0x1E5FA}};

// The ranges must be sorted.
bool is_in(std::uint32_t point, std::span<const Range> ranges) {
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), point,
                       [](std::uint32_t value, const Range& range) { return value < range.first; });
  return after != ranges.begin() && point <= std::prev(after)->last;
}

bool is_one_of(std::uint32_t point, std::initializer_list<std::uint32_t> points) {
  return std::find(points.begin(), points.end(), point) != points.end();
}

struct Categories {
  std::bitset<kPoints> word, number, punctuation, control, mark, nonspacing_mark;

  Categories() {
    for (std::uint32_t point = 0; point < kPoints; ++point) add(point);
    for (const Range& range : kOtherWords) set(word, range);
    for (const Range& range : kOtherNumbers) set(number, range);
  }

 private:
  static void set(std::bitset<kPoints>& points, Range range) {
    for (std::uint32_t point = range.first; point <= range.last; ++point) points.set(point);
  }
  void add(std::uint32_t point);
};

// Some single code points have changed their category since Unicode 8.
void Categories::add(std::uint32_t point) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(point));
  const bool is_mark = category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
  const bool is_number = category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
  const bool is_letter = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
  word[point] = is_letter || is_mark || (is_number && category != UTF8PROC_CATEGORY_NO) ||
                category == UTF8PROC_CATEGORY_PC || is_one_of(point, {0x200C, 0x200D});
  number[point] = is_number;
  const bool is_old = is_of_unicode_9(point);
  mark[point] = (is_mark && is_old && point != 0x111C9) || is_one_of(point, {0x1CF2, 0x1CF3});
  const bool is_older = is_old && !is_in(point, kOnlyUnicode9);
  nonspacing_mark[point] = (category == UTF8PROC_CATEGORY_MN && is_older &&
                            !is_one_of(point, {0x1885, 0x1886, 0xA9BD, 0x111C9})) ||
                           point == 0x1734;
  punctuation[point] = (category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO && is_older) ||
                       is_one_of(point, {0x166D, 0x111C9});
  control[point] = (category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
                    category == UTF8PROC_CATEGORY_CO) &&
                   is_older;
}

const Categories& categories() {
  static const auto all = std::make_unique<const Categories>();
  return *all;
}

}  // namespace

bool is_of_unicode_9(std::uint32_t point) { return point < 0x80 || !is_in(point, kAfterUnicode9); }

bool is_white_space(std::uint32_t point) {
  if (point < 0x80) return point == ' ' || (point >= 0x9 && point <= 0xD);
  return point == 0x85 || point == 0xA0 || point == 0x1680 || (point >= 0x2000 && point <= 0x200A) ||
         point == 0x2028 || point == 0x2029 || point == 0x202F || point == 0x205F || point == 0x3000;
}

bool is_punctuation(std::uint32_t point) {
  const bool is_alphanumeric = point - '0' < 10 || (point | 0x20u) - 'a' < 26;
  if (point < 0x80) return point > ' ' && point < 0x7F && !is_alphanumeric;
  return categories().punctuation[point];
}

bool is_word(std::uint32_t point) { return categories().word[point]; }
bool is_numeric(std::uint32_t point) { return categories().number[point]; }
bool is_control(std::uint32_t point) { return categories().control[point]; }
bool is_mark(std::uint32_t point) { return categories().mark[point]; }
bool is_nonspacing_mark(std::uint32_t point) { return categories().nonspacing_mark[point]; }

std::uint32_t lower_case(std::uint32_t point) {
  // Pairs that Unicode 16 and 17 added.
  struct Pair {
    std::uint32_t upper, lower;
  };
  constexpr Pair kPairs[] = {{0x1C89, 0x1C8A}, {0xA7CB, 0x264},  {0xA7CC, 0xA7CD}, {0xA7CE, 0xA7CF},
                             {0xA7D2, 0xA7D3}, {0xA7D4, 0xA7D5}, {0xA7DA, 0xA7DB}, {0xA7DC, 0x19B}};
  for (const Pair& pair : kPairs)
    if (point == pair.upper) return pair.lower;
  if (point >= 0x10D50 && point <= 0x10D65) return point + 0x20;
  if (point >= 0x16EA0 && point <= 0x16EB8) return point + 0x1B;
  return static_cast<std::uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(point)));
}

void append_utf8(std::uint32_t point, std::string& text) {
  if (point < 0x80) {
    text += static_cast<char>(point);
    return;
  }
  utf8proc_uint8_t bytes[4];
  const auto count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(point), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(count));
}

}  // namespace heed::detail

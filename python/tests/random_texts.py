"""Texts that are hard for tokenizers: all scripts, marks, emoji, control characters, runs of spaces, unassigned code
points."""

import random

SYLLABLES = ("a an the to of in it is was be re un able ing ed er ly tion ness con pre dis s 's n't 'll 've don't "
             "straße naïve café Ünïcödé ÉCOLE İstanbul ſ ﬁ ǆ ﷺ ™ ½ ² ٣ ४ Ⅷ ①").split()
WORDS = (*SYLLABLES, "привет", "мир", "Ελληνικά", "ὈΔΥΣΣΕΎΣ", "שלום", "مرحبا", "العربية", "हिन्दी", "ไทย", "한국어", "각",
         "中文", "東京", "日本語", "カタカナ", "ｶﾞ", "ひらがな", "𠀀", "𝕳𝖊𝖑𝖑𝖔", "ａｂｃ", "€", "№", "…", "“quotes”", "«»", "—", "_", "a_b",
         "x1y22z333", "1234567", "3.14", "1,000", "٣٤", "http://a.b/c?d=e&f", "#tag", "@me", "C++", "==", "->", "¿qué?")
EMOJI = ("😀", "👍🏽", "👨‍👩‍👧‍👦", "🇫🇷", "🏳️‍🌈", "❤️", "☺", "1️⃣", "🧑🏿‍🚀", "\u200d", "\ufe0f", "\U000e0067")
MARKS = ("\u0301", "\u0300", "\u0308", "\u0323", "\u0327", "\u0345", "\u05b0", "\u064b", "\u093c", "\u0e31", "\u20dd", "\u302a", "\u3099",
         "\U0001d165", "e\u0301\u0327", "q\u0323\u0307", "A\u030a", "\u1100\u1161\u11a8", "\u1112\u1161")
SPACES = (" ", "  ", "   ", "\n", "\r\n", "\r", "\t", "\n\n", " \n", "\u00a0", "\u2003", "\u3000", "\u1680", "\u2028", "\u0085", "\u200b",
          "\u2581", "\u2581\u2581", "\ufeff", "\x0b", "\x0c", "        ", "\u202f", "\u180e")
CONTROL = ("\x00", "\x01", "\x1b[0m", "\x7f", "\x80", "\x9f", "\xad", "\u200e", "\u202e", "\u2066", "\ufffd", "\ufffe", "\uffff", "\ue000",
           "\U000f0000", "\U0010ffff", "\u0378", "\u0530", "\u2fe0", "\U0001fbff", "\U000e0001", "\u061c", "\ufdd0")
PUNCTUATION = tuple("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~¡§¶·¿‐‘’‚„†•‰′‹›‽⁄、。「」〜！，．：；？｟～´`¨^¸˛") + (" ' ", " n't", " .", "...", "'S", "'RE ", "’s")


def character(rng: random.Random) -> str:
    """A random code point, more often a low one; never a surrogate."""
    while True:
        point = rng.randrange(rng.choice((0x80, 0x250, 0x3000, 0x10000, 0x20000, 0x110000)))
        if not 0xd800 <= point < 0xe000:
            return chr(point)


def text(rng: random.Random, special: tuple[str, ...] = ()) -> str:
    """Random pieces, with the contents of added tokens (`special`) among them: whole, broken and in other case."""
    parts = []
    for _ in range(rng.choice((rng.randrange(2), 1, 2, 3, 5, 8, 13, 21))):
        kind = rng.random()
        if kind < 0.40:
            word = rng.choice(WORDS)
            parts.append(word if rng.random() < 0.7 else rng.choice((word.upper(), word.title(), word[::-1])))
        elif kind < 0.64:
            parts.append(" " if rng.random() < 0.6 else rng.choice(SPACES))
        elif kind < 0.72:
            parts.append(rng.choice(PUNCTUATION))
        elif kind < 0.77:
            parts.append(rng.choice(EMOJI))
        elif kind < 0.82:
            parts.append(rng.choice(MARKS))
        elif kind < 0.86:
            parts.append(rng.choice(CONTROL))
        elif kind < 0.92 and special:
            token = rng.choice(special)
            parts.append(token if rng.random() < 0.7 else rng.choice((token.upper(), token[:-1], token[1:], token.lower())))
        else:
            parts.append(character(rng))
    return "".join(parts)


def sentences(count: int) -> list[str]:
    """Training texts: the same words again and again, and some of each script."""
    rng = random.Random(1)
    texts = []
    for _ in range(count):
        words = ["".join(rng.choices(SYLLABLES, k=rng.choice((1, 2, 3)))) if rng.random() < 0.7 else rng.choice(WORDS)
                 for _ in range(rng.randrange(3, 20))]
        texts.append(" ".join(words) + rng.choice((".", "!", "?", ",\n", " ...", "")))
    return texts

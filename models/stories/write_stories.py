"""Writes the text that the model of this folder learnt: little stories, drawn from the lists below.

    python3 models/stories/write_stories.py > stories.txt

The random numbers are a few lines here, so that every Python writes the same bytes."""

import sys

STORIES = 2400

PEOPLE = [("Anna", "she", "her"), ("Ben", "he", "his"), ("Clara", "she", "her"), ("David", "he", "his"),
          ("Emma", "she", "her"), ("Finn", "he", "his"), ("Grace", "she", "her"), ("Henry", "he", "his"),
          ("Ida", "she", "her"), ("Jacob", "he", "his"), ("Lily", "she", "her"), ("Max", "he", "his"),
          ("Nora", "she", "her"), ("Oscar", "he", "his")]
COLOURS = ["red", "blue", "green", "yellow", "white", "brown", "golden"]
THINGS = ["kite", "ball", "boat", "hat", "lamp", "drum", "box", "coat", "key", "book", "bell", "cup"]
PLACES = ["river", "hill", "garden", "forest", "lake", "market", "bridge", "mill", "barn", "field"]
HIDDEN = ["under the bed", "behind the door", "in the tall grass", "near the well", "under a tree",
          "on the roof", "between two stones"]
DAYS = ["One morning", "One day", "In the evening", "On a cold day", "In the spring", "After the rain",
        "Late in the summer", "On Sunday"]
FOOD = ["bread", "soup", "an apple", "cake", "cheese", "warm milk", "a pear"]
ANIMALS = ["fox", "crow", "mouse", "bear", "frog", "hare", "goose", "cat", "hen", "dog"]
FEELINGS = ["sad", "tired", "hungry", "cold", "afraid", "proud"]

LOST = [
    ["{A} had a {colour} {thing}.", "{A} loved {his} {colour} {thing}.", "The {colour} {thing} was all that {A} had."],
    ["{day} {A} took the {thing} to the {place}.", "{day} {A} went to the {place} with the {thing}."],
    ["There {A} lost the {thing}.", "On the way home the {thing} was gone.", "But the wind took the {thing} away."],
    ["\"Where is my {thing}?\" asked {A}.", "{A} looked for the {thing} all day.",
     "{A} was sad and sat down by the {place}."],
    ["Then a friend came to help {A}.", "\"I can help you, {A},\" said a friend."],
    ["They found the {thing} {hidden}.", "The {thing} was {hidden}."],
    ["\"Thank you,\" said {A}.", "{A} was happy, and went home with the {thing}.",
     "{A} and the {thing} were home again."],
]
MENDED = [
    ["{A} lived by the {place}.", "{A} had a house near the {place}."],
    ["{day} {A} made a {colour} {thing}.", "{day} {A} found a {colour} {thing}."],
    ["The {thing} fell down and broke.", "But the {thing} was too old, and it broke."],
    ["{A} was so sad that {he} did not speak.", "\"It was a good {thing},\" said {A}."],
    ["So {A} worked all night.", "{A} worked until it was dark."],
    ["In the morning the {thing} was as good as new.", "Then the {thing} was whole again."],
    ["\"It is the best {thing} of all,\" said {A}.", "{A} took the {thing} to the {place} and laughed."],
]
FABLE = [
    ["A {x} lived near the {place}.", "There was a {x} by the {place}.", "Once a {x} met the old owl."],
    ["{day} the {x} was {feeling}.", "The {x} was {feeling}."],
    ["\"Why are you {feeling}?\" asked the owl.", "The owl asked the {x} to sit down."],
    ["\"I have no {thing},\" said the {x}.", "\"I want {food},\" said the {x}."],
    ["So the owl gave the {x} {food}.", "The owl gave the {x} a {colour} {thing}."],
    ["The {x} and the owl looked at the moon.", "The {x} slept well that night."],
    ["Since that day the {x} has never been {feeling} again.", "And the {x} was not alone.",
     "\"Thank you,\" said the {x}."],
]
PLOTS = [LOST, MENDED, FABLE]


class Draw:
    """Numbers of a linear congruential generator (Knuth's MMIX), whose upper bits are used."""

    def __init__(self, seed):
        self.state = seed

    def __call__(self, items):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return items[(self.state >> 33) % len(items)]


def story(draw):
    a, he, his = draw(PEOPLE)
    names = {"A": a, "he": he, "his": his, "x": draw(ANIMALS), "place": draw(PLACES), "colour": draw(COLOURS),
             "feeling": draw(FEELINGS), "thing": draw(THINGS), "food": draw(FOOD), "hidden": draw(HIDDEN),
             "day": draw(DAYS)}
    return " ".join(draw(lines).format(**names) for lines in draw(PLOTS)) + "\n"


def main():
    draw = Draw(1)
    sys.stdout.write("\n".join(story(draw) for _ in range(STORIES)))


if __name__ == "__main__":
    main()

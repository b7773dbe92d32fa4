"""What a seed decides. Every choice has a name and random numbers of its own, so
that one choice made otherwise (shrinking does that) leaves all others alone.

The first option of a choice is the plainest one: it is what shrinking tries.
"""

import random


class Choices:
    def __init__(self, seed, plain=(), scope="", taken=None):
        self.seed = seed
        self.plain = frozenset(plain)  # names of choices that take their first option
        self.scope = scope
        self.taken = {} if taken is None else taken  # name -> (index, text of the option)

    def within(self, scope):
        """The choices of a part of the program, with names of their own."""
        return Choices(self.seed, self.plain, f"{self.scope}{scope}.", self.taken)

    def pick(self, name, options, weights=None):
        """One of `options`. A name asked for twice has the same answer."""
        full = self.scope + name
        index = 0
        if full not in self.plain:
            generator = random.Random(f"{self.seed}/{full}")
            index = generator.choices(range(len(options)), weights)[0]
        self.taken[full] = (index, str(options[index]))
        return options[index]

    def flag(self, name, probability=0.5):
        return self.pick(name, [False, True], [1 - probability, probability])

    def integer(self, name, low, high):
        return self.pick(name, list(range(low, high + 1)))

    def not_plain(self):
        """Names of the choices that did not take their first option."""
        return [name for name, (index, _) in self.taken.items() if index]

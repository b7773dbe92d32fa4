"""The comparison itself must notice what it is there to notice."""

import unittest

from compare_runs import Different, compare


class CompareRuns(unittest.TestCase):
    def test_equal(self):
        result = compare("loss 0.5 at 3\n", "loss 0.5 at 3\n")
        self.assertEqual((result.numbers, result.absolute, result.relative), (2, 0, 0))

    def test_differences_are_measured(self):
        result = compare("a 2.0\nb 1e-3\n", "a 2.5\nb 1e-3\n")
        self.assertEqual(result.absolute, 0.5)
        self.assertEqual(result.relative, 0.2)
        self.assertIn("line 1", result.where)

    def test_negative_and_exponent(self):
        self.assertEqual(compare("x -1.5e-8", "x 1.5e-8").absolute, 3e-8)

    def test_texts(self):
        with self.assertRaises(Different):
            compare("loss 1", "cost 1")

    def test_missing_line(self):
        with self.assertRaises(Different):
            compare("a 1\nb 2\n", "a 1\n")

    def test_nan_on_one_side(self):
        with self.assertRaises(Different):
            compare("loss 1.0", "loss nan")
        self.assertEqual(compare("loss nan", "loss nan").absolute, 0)

    def test_floor(self):
        self.assertGreater(compare("a 1e-12", "a 2e-12").relative, 0.4)
        self.assertEqual(compare("a 1e-12", "a 2e-12", floor=1e-11).relative, 0)
        self.assertEqual(compare("a 2.0", "a 2.5", floor=1e-11).relative, 0.2)

    def test_chosen_lines(self):
        self.assertEqual(compare("a 1\nb 2", "a 9\nb 2", lambda line: line.startswith("b")).absolute, 0)


if __name__ == "__main__":
    unittest.main()

"""public_names.py: every public name of the runtime's headers has a comment, a link to its source and an example."""

import os
import shutil
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "packaging", "site"))
import reference


class PublicNames(unittest.TestCase):
    def faults(self, headers):
        """What is wrong with the reference of a folder of headers, and how many pages it has."""
        with tempfile.TemporaryDirectory(prefix="accel-reference-") as work:
            groups, faults = reference.write_reference(headers, os.path.join(ROOT, "docs/reference"), work, f"{work}/out")
            return faults, sum(len(pages) for _, pages in groups)

    def test_all_are_documented(self):
        faults, pages = self.faults(os.path.join(ROOT, "runtime/include"))
        self.assertEqual([], faults, "\n".join(faults))
        self.assertGreater(pages, 100)

    def test_a_name_without_comment_or_example_is_found(self):
        with tempfile.TemporaryDirectory(prefix="accel-headers-") as folder:
            shutil.copytree(os.path.join(ROOT, "runtime/include"), f"{folder}/include")
            with open(f"{folder}/include/accel/new.h", "w") as file:
                file.write("#pragma once\nnamespace accel {\nvoid silent();\n/// Does.\nvoid commented();\n"
                           "struct Bare {\n  /// Does.\n  int value() const;\n};\n} // namespace accel\n")
            faults, _ = self.faults(f"{folder}/include")
        self.assertEqual(["accel::Bare: no comment", "accel::Bare: no example in docs/reference",
                          "accel::Bare::value: no example in docs/reference", "accel::commented: no example in docs/reference",
                          "accel::silent: no comment (accel/new.h:3)", "accel::silent: no example in docs/reference"],
                         sorted(faults))


if __name__ == "__main__":
    if not shutil.which("doxygen"):
        print("doxygen, which reads the headers, is not installed (scripts/setup)")
        sys.exit(77)
    unittest.main()

"""Validates a document against a schema, and checks what a schema cannot say.

    check_json.py SCHEMA DOCUMENT [ROOT]

With ROOT the changes are made to the files below it, and the result is printed
by file name: what a reader of the document would do.
"""

import json
import os
import sys

import jsonschema

schema = json.load(open(sys.argv[1]))
document = json.load(open(sys.argv[2]))
jsonschema.Draft7Validator.check_schema(schema)
jsonschema.Draft7Validator(schema).validate(document)

for file in document["files"]:
    end = 0
    for change in file["changes"]:
        assert change["offset"] >= end, (file["path"], change)
        end = change["offset"] + change["length"]

for file in document["files"] if len(sys.argv) > 3 else []:
    path = os.path.join(sys.argv[3], file["path"])
    text = open(path, "rb").read()
    for change in reversed(file["changes"]):
        begin = change["offset"]
        # The place is given twice.
        assert text[:begin].count(b"\n") + 1 == change["line"], change
        assert begin - text.rfind(b"\n", 0, begin) == change["column"], change
        text = text[:begin] + change["replacement"].encode() + text[begin + change["length"] :]
    open(path, "wb").write(text)

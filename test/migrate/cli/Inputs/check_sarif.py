"""Checks a SARIF log: what the standard requires of the properties that
accel-migrate writes, references between its parts, and that its fixes work.

    check_sarif.py LOG ROOT

The fixes are made to the files below ROOT. With ACCEL_SARIF_SCHEMA=FILE the
log is also validated against OASIS's schema, which is not ours to distribute.
"""

import json
import os
import re
import sys
from urllib.parse import unquote, urlparse

log = json.load(open(sys.argv[1]))
root = sys.argv[2]

if os.environ.get("ACCEL_SARIF_SCHEMA"):
    import jsonschema

    schema = json.load(open(os.environ["ACCEL_SARIF_SCHEMA"]))
    jsonschema.validators.validator_for(schema)(schema).validate(log)


def only(thing, required, optional=()):
    """An object with these properties and no others."""
    assert isinstance(thing, dict), thing
    missing, unknown = set(required) - set(thing), set(thing) - set(required) - set(optional)
    assert not missing and not unknown, (missing, unknown, thing)
    return thing


def message(thing):
    only(thing, ["text"])
    assert thing["text"], thing


def location(thing, bases):
    only(thing, ["uri"], ["uriBaseId"])
    assert re.fullmatch(r"[A-Za-z0-9._~/%:-]+", thing["uri"]), thing
    if "uriBaseId" in thing:
        assert thing["uriBaseId"] in bases and not urlparse(thing["uri"]).scheme
    else:
        assert thing["uri"].startswith("file:///")
    return os.path.join(root, unquote(thing["uri"]))


def region(thing):
    only(thing, ["startLine"], ["startColumn", "endLine", "endColumn"])
    assert all(isinstance(value, int) and value >= 1 for value in thing.values()), thing
    if "endLine" in thing:
        assert (thing["startLine"], thing["startColumn"]) <= (thing["endLine"], thing["endColumn"]), thing


def offset(text, line, column):
    """Columns count code points: columnKind."""
    lines = re.findall("[^\n]*\n|[^\n]+", text) + [""]
    assert column <= len(lines[line - 1]) + 1
    return sum(map(len, lines[: line - 1])) + column - 1


only(log, ["version", "runs", "$schema"])
assert log["version"] == "2.1.0" and log["$schema"].endswith("sarif-schema-2.1.0.json")
(run,) = log["runs"]
only(run, ["tool", "results", "columnKind", "originalUriBaseIds", "invocations"])
assert run["columnKind"] == "unicodeCodePoints"
bases = run["originalUriBaseIds"]
for base in bases.values():
    assert base["uri"].startswith("file:///") and base["uri"].endswith("/")
(invocation,) = run["invocations"]
only(invocation, ["executionSuccessful", "exitCode"])
driver = only(only(run["tool"], ["driver"])["driver"], ["name", "version", "semanticVersion", "rules"])
assert driver["name"] == "accel-migrate" and re.fullmatch(r"\d+\.\d+\.\d+", driver["semanticVersion"])
ids = [rule["id"] for rule in driver["rules"]]
assert len(set(ids)) == len(ids)
for rule in driver["rules"]:
    only(rule, ["id", "shortDescription", "defaultConfiguration"], ["help"])
    message(rule["shortDescription"])
    assert rule["defaultConfiguration"]["level"] in ("note", "warning", "error")
    if rule["id"] != "migration":
        only(rule["help"], ["text", "markdown"])

assert run["results"]
used, fixed = set(), 0
for result in run["results"]:
    only(result, ["ruleId", "ruleIndex", "level", "message", "locations"], ["fixes"])
    assert ids[result["ruleIndex"]] == result["ruleId"]
    used.add(result["ruleId"])
    assert result["level"] in ("note", "warning", "error")
    message(result["message"])
    for place in result["locations"]:
        physical = only(only(place, ["physicalLocation"])["physicalLocation"], ["artifactLocation"], ["region"])
        location(physical["artifactLocation"], bases)
        if "region" in physical:
            region(physical["region"])
    for fix in result.get("fixes", []):
        only(fix, ["description", "artifactChanges"])
        message(fix["description"])
        assert fix["artifactChanges"]
        for change in fix["artifactChanges"]:
            only(change, ["artifactLocation", "replacements"])
            path = location(change["artifactLocation"], bases)
            text = open(path, newline="").read()
            assert change["replacements"]
            for replacement in reversed(change["replacements"]):
                only(replacement, ["deletedRegion"], ["insertedContent"])
                place = replacement["deletedRegion"]
                region(place)
                begin = offset(text, place["startLine"], place["startColumn"])
                end = offset(text, place["endLine"], place["endColumn"])
                text = text[:begin] + replacement["insertedContent"]["text"] + text[end:]
            open(path, "w", newline="").write(text)
            fixed += 1
assert used == set(ids), "a rule is described that no result has"
print(f"{len(run['results'])} results, {fixed} files fixed")

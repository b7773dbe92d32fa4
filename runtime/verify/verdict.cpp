#include "verdict.h"

#include <algorithm>

namespace accel::verify {
namespace {

/// The end of what a run wrote to standard error, for a message.
std::string last_lines(const std::vector<std::string>& errors) {
  std::string text;
  for (const auto& error : errors) {
    if (!error.empty()) {
      text = error;
    }
  }
  if (text.empty()) {
    return "";
  }
  text.resize(text.find_last_not_of('\n') + 1); // npos + 1 is 0
  size_t begin = text.size();
  for (int line = 0; line < 8 && begin != std::string::npos && begin > 0;
       ++line) {
    begin = text.rfind('\n', begin - 1);
  }
  return "\n" + (begin == std::string::npos ? text : text.substr(begin + 1));
}

/// Whether there is anything to compare of a program that calls no backward (it may
/// train with torch::autograd::grad).
bool shows_numbers(const Run& run) {
  return !run.written.empty() ||
      (!run.output.empty() &&
       run.output[0].find_first_of("0123456789") != std::string::npos);
}

/// Why a run left nothing that can be compared; empty where it did.
std::string failure(const Run& run) {
  if (run.timed_out) {
    return run.name + " ran longer than --timeout allows (" +
        std::to_string(static_cast<int>(run.seconds)) + " s)";
  }
  if (run.exit_code != 0) {
    return run.name + " failed with exit code " +
        std::to_string(run.exit_code) + last_lines(run.errors);
  }
  for (size_t rank = 0; rank < run.traces.size(); ++rank) {
    if (!run.traces[rank]) {
      return run.name + ": process " + std::to_string(rank) +
          " was not recorded. Is it a dynamically linked program that uses "
          "LibTorch?";
    }
  }
  for (const auto& trace : run.traces) {
    if (!trace->complete) {
      return run.name + ": process " + std::to_string(trace->rank) +
          " ended without leaving main (by _exit, quick_exit or exec), so that "
          "its last steps and the final parameters are not known";
    }
    if (trace->backwards.empty() &&
        (!trace->notes.empty() || !shows_numbers(run))) {
      return run.name + ": process " + std::to_string(trace->rank) +
          " called no backward" +
          (trace->notes.empty()
               ? ", and printed and wrote nothing. Has it found its data?"
               : ": " + trace->notes.front());
    }
  }
  return "";
}

/// Rounding at the end of the run, for what was printed and written then.
double final_tolerance(const TraceComparison& trace) {
  return trace.tolerance.at(trace.backwards_original);
}

std::string counted(size_t count, const std::string& what) {
  return std::to_string(count) + what + (count == 1 ? "" : "s");
}

std::string event_text(const Event& event, uint64_t steps) {
  const std::string who = event.between_processes
      ? "process " + std::to_string(event.rank) + " and process 0: "
      : "";
  if (event.step >= steps) {
    return who + "after all " + std::to_string(steps) + " steps: " + event.what;
  }
  return "step " + std::to_string(event.step) + ": " + who + event.what;
}

void judge_trace(
    const Run& original,
    const Run& migrated,
    const ToleranceOptions& options,
    Verdict& verdict) {
  std::vector<const Trace*> traces;
  verdict.notes = original.main_trace().notes;
  for (const auto& trace : migrated.traces) {
    traces.push_back(&*trace);
    for (const auto& note : trace->notes) {
      verdict.notes.push_back(note);
    }
  }
  verdict.trace = compare_traces(
      original.main_trace(),
      original.tensors.string(),
      traces,
      migrated.tensors.string(),
      options);
  for (const auto& text : verdict.trace->notes) {
    verdict.notes.push_back(text);
  }
  const auto& first = verdict.trace->first;
  if (first) {
    verdict.outcome = Outcome::kDifferent;
    verdict.finding = event_text(*first, verdict.trace->steps.size());
    verdict.cause = find_cause(
        original.main_trace(),
        migrated.main_trace(),
        *verdict.trace,
        migrated.processes);
  }
}

void differ(Verdict& verdict, const std::string& finding, const Cause& cause) {
  if (verdict.outcome == Outcome::kDifferent) {
    verdict.notes.push_back(finding);
    return;
  }
  verdict.outcome = Outcome::kDifferent;
  verdict.finding = finding;
  verdict.cause = cause;
}

void judge_texts(
    const Run& original,
    const Run& repeat,
    const Run& migrated,
    Verdict& verdict) {
  const double tolerance = final_tolerance(*verdict.trace);
  const double zero = rounding_of_one(verdict.trace->dtype);
  verdict.text = compare_texts(
      original.output[0],
      repeat.output[0],
      migrated.output[0],
      tolerance,
      zero);
  if (verdict.text.different) {
    // A metric of one part of the data is further apart.
    constexpr double kMostOfRounding = 1e-6;
    const bool small =
        verdict.text.only_numbers && verdict.text.largest <= kMostOfRounding;
    differ(
        verdict,
        "what is printed differs in " + verdict.text.first,
        small ? Cause{"only what is printed differs, by little more than rounding: "
                      "a number that is what is left of larger ones, or one "
                      "that was added up in another precision",
                      "small-numbers"}
            : verdict.text.only_numbers
            ? Cause{"only what is printed differs, not the training: a metric "
                    "that is computed from one process's part of the data",
                    "local-metric"}
            : Cause{"only what is printed differs, not the training", "text"});
  }
  for (size_t rank = 1; rank < migrated.traces.size(); ++rank) {
    if (!migrated.output[rank].empty()) {
      differ(
          verdict,
          "process " + std::to_string(rank) + " printed, too: " +
              migrated.output[rank].substr(
                  0, migrated.output[rank].find('\n')),
          {"prints that are not restricted to the main process "
           "(accelerator.cout(), accelerator.printf)",
           "text"});
      break;
    }
  }
  const auto errors = compare_texts(
      original.errors[0],
      repeat.errors[0],
      migrated.errors[0],
      tolerance,
      zero);
  if (errors.different) {
    verdict.notes.push_back(
        "standard error differs, which does not count: " + errors.first);
  }
  if (verdict.text.last_digits > 0) {
    verdict.notes.push_back(
        "differ by one in the last digit, which rounding explains: " +
        counted(verdict.text.last_digits, " printed number"));
  }
  if (verdict.text.left_of_larger > 0) {
    verdict.notes.push_back(
        "taken for zero, which is what rounding leaves of numbers that cancel "
        "each other: " +
        counted(verdict.text.left_of_larger, " printed number") + " up to " +
        short_number(zero));
  }
  if (verdict.text.ignored_numbers > 0) {
    verdict.notes.push_back(
        "printed times, and numbers that change from run to run of the "
        "original, were not compared: " +
        std::to_string(verdict.text.ignored_numbers));
  }
}

void judge_files(
    const Run& original,
    const Run& repeat,
    const Run& migrated,
    Verdict& verdict) {
  std::vector<int64_t> left_to_chance;
  for (size_t i = 0; i < verdict.trace->tensors.size(); ++i) {
    if (verdict.trace->tensors[i].undetermined) {
      left_to_chance.push_back(verdict.trace->pairs[i].first->numel());
    }
  }
  verdict.files = compare_files(
      {original.work_directory, original.written},
      {repeat.work_directory, repeat.written},
      {migrated.work_directory, migrated.written},
      final_tolerance(*verdict.trace),
      left_to_chance,
      rounding_of_one(verdict.trace->dtype));
  for (const auto& file : verdict.files.files) {
    if (!file.left_out.empty()) {
      verdict.notes.push_back(
          "the file " + file.name + ": " + file.left_out +
          " differ, but are of the size of a parameter that is left to "
          "chance, and were not compared");
    }
  }
  for (const auto& file : verdict.files.files) {
    if (file.different) {
      differ(
          verdict,
          "the file " + file.name + ": " + file.finding,
          {"only what is written differs, not the training", "files"});
      break;
    }
    if (file.ignored) {
      verdict.notes.push_back("the file " + file.name + ": " + file.finding);
    }
  }
  for (const auto& path : migrated.damaged) {
    verdict.notes.push_back(
        "the program wrote into your file " + path +
        ", which is too large to be copied for a run");
  }
}

/// "a", "a and b", "a, b, c and 2 more".
std::string listed(const std::vector<std::string>& names) {
  constexpr size_t kMost = 3;
  const size_t shown =
      names.size() <= kMost + 1 ? names.size() : kMost;
  std::string text;
  for (size_t i = 0; i < shown; ++i) {
    const bool last = i + 1 == names.size();
    text += (i == 0 ? "" : last ? " and " : ", ") + names[i];
  }
  return shown == names.size()
      ? text
      : text + " and " + std::to_string(names.size() - shown) + " more";
}

} // namespace

std::vector<std::string> notes_on_left_out(const TraceComparison& trace) {
  std::vector<std::string> notes, random, unused;
  for (const auto& tensor : trace.tensors) {
    if (tensor.undetermined && tensor.follows.empty()) {
      random.push_back(tensor.name);
    } else if (tensor.undetermined) {
      notes.push_back(
          tensor.name + " follows " + tensor.follows +
          ", whose value is random; it was not compared");
    }
    if (tensor.unused_gradient) {
      unused.push_back(tensor.name);
    }
  }
  const auto note = [&](const std::vector<std::string>& names,
                        const char* one,
                        const char* several) {
    if (!names.empty()) {
      notes.push_back(listed(names) + (names.size() == 1 ? one : several));
    }
  };
  note(
      random,
      " has no gradient but rounding, so its value is random; it was not "
      "compared",
      " have no gradient but rounding, so their values are random; they were "
      "not compared");
  note(
      unused,
      " is never changed: its gradient, on which nothing steps, is that of a "
      "part of the batch and was not compared",
      " are never changed: their gradients, on which nothing steps, are those of "
      "a part of the batch and were not compared");
  return notes;
}

Verdict judge(
    const Run& original,
    const Run& repeat,
    const Run& migrated,
    const ToleranceOptions& options) {
  Verdict verdict;
  verdict.processes = migrated.processes;
  verdict.way = migrated.way;
  verdict.seconds = migrated.seconds;
  const std::string failed = failure(migrated);
  if (!failed.empty()) {
    verdict.finding = failed;
    return verdict;
  }
  verdict.outcome = Outcome::kEqual;
  judge_trace(original, migrated, options, verdict);
  if (!verdict.trace->meaningless.empty()) {
    verdict.notes.push_back(
        "the original's loss or its parameters are NaN in " +
        counted(verdict.trace->meaningless.size(), " step") + ", first in step " +
        std::to_string(verdict.trace->meaningless.front()) +
        ": there, programs that differ look equal");
  }
  judge_texts(original, repeat, migrated, verdict);
  judge_files(original, repeat, migrated, verdict);
  for (auto& note : notes_on_left_out(*verdict.trace)) {
    verdict.notes.push_back(std::move(note));
  }
  // Several processes may say the same.
  std::vector<std::string> once;
  for (auto& note : verdict.notes) {
    if (std::find(once.begin(), once.end(), note) == once.end()) {
      once.push_back(std::move(note));
    }
  }
  verdict.notes = std::move(once);
  return verdict;
}

std::string cannot_compare(
    const Run& original, const Run& repeat, const ToleranceOptions& options) {
  for (const Run* run : {&original, &repeat}) {
    const std::string failed = failure(*run);
    if (!failed.empty()) {
      return failed;
    }
  }
  const auto again = compare_traces(
      original.main_trace(),
      original.tensors.string(),
      {&repeat.main_trace()},
      repeat.tensors.string(),
      options);
  if (again.meaningless.size() * 2 > again.steps.size()) {
    return "the original's loss or its parameters are NaN in " +
        std::to_string(again.meaningless.size()) + " of " +
        counted(again.steps.size(), " step") +
        ", and programs that compute NaN cannot be told apart. Give it other "
        "data, or fewer steps (--max-steps)";
  }
  if (again.first) {
    return "two runs of the original already differ, at " +
        event_text(*again.first, again.steps.size()) +
        ". Its random numbers come from a clock or from threads that race; give "
        "it a fixed seed";
  }
  return "";
}

std::string summary(const Verdict& verdict) {
  if (verdict.outcome != Outcome::kEqual) {
    return verdict.finding;
  }
  const auto& trace = *verdict.trace;
  const std::string training = trace.steps.empty()
      ? "no backward was called: "
      : std::to_string(trace.steps.size()) + " steps, loss within " +
          short_number(trace.largest_loss()) + ", gradients " +
          short_number(trace.largest_gradient()) + ", final parameters " +
          short_number(trace.largest_final()) + "; ";
  return training + counted(verdict.text.numbers, " printed number") + ", " +
      counted(verdict.files.files.size(), " file") +
      (verdict.text.same_bytes ? "; the same bytes printed" : "");
}

} // namespace accel::verify

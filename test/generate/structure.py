"""The structure of a program: where the statements of a training stand, and how
functions, methods, lambdas and files reach what they need."""

import re
from dataclasses import dataclass, field

from text import Reach, Var, formatted

FORMS = ["main", "functions", "class", "lambdas", "globals", "split", "two_sources", "experiment", "step_function", "module"]
HEADERS = ["algorithm", "cmath", "cstdint", "cstdio", "deque", "fstream", "functional", "iomanip", "iostream", "limits", "memory", "numeric", "random",
           "sstream", "string", "tuple", "utility", "vector"]


@dataclass
class Program:
    files: dict  # name -> text; main.cpp and what it includes
    sources: list = field(default_factory=lambda: ["main.cpp"])
    may_refuse: frozenset = frozenset()  # findings that the generator meant


def reach_of(variables, attribute):
    return Reach({v.name for v in variables if getattr(v, attribute)})


def function(name, variables, extra, body, result):
    """A free function with the variables as parameters; and its call."""
    templates = []
    for var in variables:
        if var.template and var.template not in templates:
            templates.append(var.template)
    head = [f"template <{', '.join('typename ' + t for t in templates)}>"] if templates else []
    parameters = [f"{kind} {which}" for kind, which in extra] + [var.parameter for var in variables]
    arguments = [which for _, which in extra] + [var.passed for var in variables]
    reach = reach_of(variables, "parameter_is_pointer")
    lines = list(flat(body(reach)))
    if head and any(re.match(r"auto \w+ = .*(data|target)\b", line) for line in lines):
        # The batch has a dependent type, and so has what is calculated from it.
        lines = [re.sub(r"\.(item|accessor|data_ptr)<", r".template \1<", line) for line in lines]
    text = head + [f"double {name}({', '.join(parameters)}) {{", lines, f"return {result};", "}"]
    return text, f"{name}({', '.join(arguments)})"


class Composer:
    def __init__(self, choices, training, outputs, device):
        self.choices, self.training, self.outputs, self.device = choices, training, outputs, device
        self.devices = [device] if device else []
        self.form = choices.pick("structure", FORMS, [5, 4, 3, 2, 2, 1, 1, 2, 2, 1])

    # The loop over epochs.

    def loop(self, reach, epoch, evaluation, ends=True):
        """All statements of a training from its optimizer on; `epoch` and `evaluation` are statements
        that declare epoch_loss and test_loss."""
        choose, training = self.choices, self.training
        stop = choose.pick("stop", ["", "early", "target", "best"], [6, 1, 1, 2])
        model = training.net
        if stop == "best" and (training.model.var.type == training.model.var.name or not training.model.var.pointer):
            stop = ""
        lines = [training.schedule.declared(reach)]
        if stop in ("early", "best"):
            lines += ["double best_loss = std::numeric_limits<double>::max();"] + (["int waited = 0;"] if stop == "early" else [])
        count = choose.pick("epoch_count", ["<", "!="])
        lines.append(f"for (int epoch = 0; epoch {count} {training.epochs}; ++epoch) {{")
        lines.append(epoch)
        said = ["epoch ", ("count", "epoch"), " mean loss ", ("number", "epoch_loss")]
        lines += self.outputs.say(said)
        lines += self.outputs.logged(said) if ends else []
        when = choose.pick("evaluate", ["each_epoch", "end", "both"]) if training.test else "never"
        if when in ("each_epoch", "both"):
            lines.append(evaluation)
        lines += training.schedule.after_epoch(reach, "epoch_loss")
        if stop == "early":
            lines += ["if (epoch_loss < best_loss - 0.01) {", "best_loss = epoch_loss;", "waited = 0;", "} else if (++waited >= 1) {",
                      *self.outputs.say(["stopped early in epoch ", ("count", "epoch")]), "break;", "}"]
        elif stop == "target":
            lines += ["if (epoch_loss < 0.8) {", *self.outputs.say(["good enough"]), "break;", "}"]
        elif stop == "best":
            lines += ["if (epoch_loss < best_loss) {", "best_loss = epoch_loss;", f'torch::save({model}, "best.pt");', "}"]
        lines.append("}")
        if stop == "best":
            lines += [f'torch::load({model}, "best.pt");']
        if when in ("end", "both"):
            lines.append(evaluation)
        lines += self.last_words(reach)
        return lines

    def last_words(self, reach):
        """What is said at the end, always with many digits: the weights."""
        choose, training = self.choices, self.training
        lines = []
        if choose.flag("save", 0.3) and training.model.var.pointer:
            lines += [f'torch::save({training.net}, "model.pt");']
            if choose.flag("load", 0.6):
                lines += [f'torch::load({training.net}, "model.pt");']
            if choose.flag("save_optimizer", 0.3) and hasattr(training, "optimizer"):
                lines += [f'torch::save({reach.object(training.optimizer.var.name)}, "optimizer.pt");']
        lines += ["double weights_sum = 0;", f"for (const auto& p : {reach.dot(training.net)}parameters()) {{",
                  "weights_sum += p.abs().sum().item<double>();", "}"]
        return lines + self.outputs.say(["weights ", ("number", "weights_sum")])

    # Structures.

    def setup(self, variables=None):
        training = self.training
        reach = reach_of([training.model.var], "pointer")
        lines = [var.declaration() for var in self.devices]
        lines += [training.model.var.declaration(), training.model_statements(reach)]
        lines += [var.declaration() for var in training.source.variables + training.test]
        return lines + [training.optimizer.var.declaration()]

    def all_variables(self):
        training = self.training
        return [training.model.var, training.optimizer.var, *training.source.variables, *training.test]

    def inline_parts(self, reach):
        training = self.training
        epoch = training.epoch(reach)
        evaluation = ["{", training.evaluation(reach), "}"] if training.test else []
        return epoch, evaluation

    def calls(self):
        """Epoch and evaluation as free functions; their text, and statements that call them."""
        training = self.training
        types, epoch_call = function("train_epoch", training.epoch_variables() + self.devices, [("int", "epoch")], training.epoch, "epoch_loss")
        texts = [types]
        evaluation = []
        if training.test:
            types, call = function("evaluate", training.test_variables() + self.devices, [], training.evaluation, "test_loss")
            texts.append(types)
            evaluation = [f"{call};"] if self.choices.flag("ignore_result") else [
                "{", f"double test_loss = {call};", *self.outputs.say(["returned ", ("number", "test_loss")]), "}"]
        return texts, [f"double epoch_loss = {epoch_call};"], evaluation

    def main(self, statements, start=()):
        seed = self.choices.integer("torch_seed", 0, 99)
        lines = [f"int main({self.choices.pick('arguments', ['', 'int argc, char** argv', 'int argc, const char* argv[]'])}) {{", *start,
                 f"torch::manual_seed({seed});"]
        if not self.training.real:
            lines.append("torch::set_default_dtype(caffe2::TypeMeta::Make<double>());")
        lines += [self.outputs.start(), statements]
        return lines + (["return 0;"] if self.choices.flag("return_zero") else []) + ["}"]

    def compose(self):
        return getattr(self, f"_{self.form}")()

    def _one_file(self, parts):
        return Program({"main.cpp": self.text([f"#include <{h}>" for h in HEADERS], parts)})

    def text(self, includes, parts, top=()):
        width = self.choices.pick("indentation", [2, 4])
        sections = [formatted(["#include <torch/torch.h>", ""] + list(includes), width)] if includes else []
        sections += [formatted(part, width) for part in parts if part]
        text = "\n".join(list(top) + sections)
        names = self._constant_form()[1]
        for name, _ in self.training.constants():
            text = re.sub(rf"(?<![.>])\b{name}\b", names(name), text)
        return self.with_names(text, bool(includes))

    def with_names(self, text, first):
        """Shorter names, as people declare them behind the includes."""
        form = self.choices.pick("names", ["", "F", "nn", "std"], [6, 1, 1, 1])
        if not form:
            return text
        declared = {"F": ["namespace F = torch::nn::functional;"], "nn": ["namespace nn = torch::nn;", "namespace opts = torch::optim;"],
                    "std": ["using namespace std;"]}[form]
        if form == "F":
            text = text.replace("torch::nn::functional::", "F::")
        elif form == "nn":
            text = text.replace("torch::nn::", "nn::").replace("torch::optim::", "opts::")
        else:
            text = re.sub(r"std::(cout|cerr|endl|vector|string|pair|setprecision|fixed|shared_ptr|make_shared|unique_ptr|make_unique|ofstream)\b", r"\1", text)
        if not first:
            return text
        last = max(match.end() for match in re.finditer(r"^#include .*\n", text, re.MULTILINE))
        return text[:last] + "\n" + "\n".join(declared) + "\n" + text[last:]

    def _constant_form(self):
        """How a constant is declared, and how its name is spelled."""
        camel = lambda name: "k" + "".join(word.capitalize() for word in name.split("_"))
        return self.choices.pick("constants", [("const int64_t {} = {};", str), ("constexpr int64_t {} = {};", camel), ("#define {} {}", str.upper),
                                               ("static int64_t {} = {};", str), ("const int {} = {};", str.upper)], [3, 3, 1, 1, 1])

    def _constants(self):
        return [self._constant_form()[0].format(name, value) for name, value in self.training.constants()]

    def _prelude(self):
        return [self._constants(), *self.training.types(), self.outputs.types]

    def _main(self):
        reach = reach_of(self.all_variables(), "pointer")
        epoch, evaluation = self.inline_parts(reach)
        loop = self.loop(reach, epoch, evaluation)
        if self.choices.flag("try", 0.1):
            loop = ["try {", loop, "} catch (const std::exception& e) {", *self.choices.pick("caught", [
                ["std::cerr << e.what() << std::endl;", "return 1;"], ["std::cout << \"error: \" << e.what() << std::endl;", "return -1;"]]), "}"]
        return self._one_file(self._prelude() + [self.main([self.setup(), loop])])

    def _functions(self):
        reach = reach_of(self.all_variables(), "pointer")
        texts, epoch, evaluation = self.calls()
        return self._one_file(self._prelude() + texts + [self.main([self.setup(), self.loop(reach, epoch, evaluation)])])

    def _step_function(self):
        """One step in a function of its own, called from a loop without braces where that is possible."""
        training, choose = self.training, self.choices
        reach = reach_of(self.all_variables(), "pointer")
        variables = [training.model.var, training.optimizer.var]
        body = lambda inner: [training.forward(inner), *training.loss.declared, *training.loss.lines("output", training.y, training.net, inner),
                              f"{inner.dot(training.optimizer.var.name)}zero_grad();", "loss.backward();",
                              f"{inner.dot(training.optimizer.var.name)}step();"]
        style = choose.pick("step_parameters", ["torch::Tensor", "const torch::Tensor&"])
        text, call = function("train_step", variables, [(style, training.x), (style, training.y)], body, "loss.item<double>()")
        fetch = training.source.fetch(reach)
        step = f"running_loss += {call};"
        if len(fetch) == 2 and all(re.match(r"(auto|torch::Tensor) \w+ = ", line) for line in fetch) and choose.flag("without_braces", 0.7):
            first, second = (re.match(r"\S+ (\w+) = (.*);$", line).group(2) for line in fetch)
            step = f"running_loss += {call.replace(f'({training.x}, {training.y},', f'({first}, {second},', 1)};"
            loop = [training.source.head(reach), f"++batch_index, {step}"] if choose.flag("comma", 0.2) else [training.source.head(reach), step]
        else:
            loop = [training.source.head(reach) + " {", *fetch, step, *self.outputs.say(["step ", ("number", "running_loss")]), "++batch_index;", "}"]
        epoch = ["double running_loss = 0;", "int64_t batch_index = 0;", *training.source.before(reach), loop,
                 "double epoch_loss = running_loss / train_rows + batch_index;"]
        _, evaluation = self.inline_parts(reach)
        return self._one_file(self._prelude() + [text, self.main([self.setup(), self.loop(reach, epoch, evaluation)])])

    def _module(self):
        """A model that trains itself: the step is a method of it."""
        training = self.training
        at = next((i for i, line in enumerate(training.model.types) if line.startswith("torch::Tensor forward(")), None)
        if at is None:
            return self._functions()

        class Inside:
            pointers = ()

            @staticmethod
            def dot(name):
                return ""

        x, y = training.x, training.y
        method = [f"double train_step(torch::Tensor {x}, torch::Tensor {y}, torch::optim::Optimizer& optimizer) {{",
                  self.choices.pick("own_zero", ["optimizer.zero_grad();", "zero_grad();"]), f"auto output = forward({x});", *training.loss.declared,
                  *training.loss.lines("output", y, training.net, Inside), "loss.backward();", "optimizer.step();", "return loss.item<double>();", "}"]
        training.model.types[at:at] = method
        reach = reach_of(self.all_variables(), "pointer")
        epoch = ["double epoch_loss = 0;", *training.source.before(reach), training.source.head(reach) + " {", *training.source.fetch(reach),
                 f"double step_loss = {reach.dot(training.net)}train_step({x}, {y}, {training.optimizer.var.passed});",
                 *self.outputs.say(["step ", ("number", "step_loss")]), "epoch_loss += step_loss;", "}"]
        _, evaluation = self.inline_parts(reach)
        return self._one_file(self._prelude() + [self.main([self.setup(), self.loop(reach, epoch, evaluation)])])

    def _lambdas(self):
        training = self.training
        reach = reach_of(self.all_variables(), "pointer")
        lambdas = [["auto train_epoch = [&](int epoch) {", training.epoch(reach), "return epoch_loss;", "};"]]
        evaluation = []
        if training.test:
            form = self.choices.pick("lambda", ["auto", "function"])
            head = "auto evaluate = [&]() {" if form == "auto" else "std::function<double()> evaluate = [&]() -> double {"
            lambdas.append([head, training.evaluation(reach), "return test_loss;", "};"])
            evaluation = ["evaluate();"]
        return self._one_file(self._prelude() + [self.main([self.setup(), lambdas, self.loop(reach, ["double epoch_loss = train_epoch(epoch);"], evaluation)])])

    def _globals(self):
        """Model, optimizer and tensors outside of main; loaders are passed."""
        training = self.training
        # What is made in front of main draws from a generator that nobody has seeded yet.
        passed = [var for var in self.all_variables() if not var.assignment]
        kept = [var for var in self.all_variables() if var.assignment]
        declared = [var.deferred for var in kept]
        if self.device:
            declared.insert(0, "torch::Device device(torch::kCPU);")
        reach = Reach({v.name for v in kept if v.deferred_pointer} | {v.name for v in passed if v.pointer})

        def inside(variables):
            given = [var for var in variables if var in passed]
            return given, lambda inner: Reach({v.name for v in kept if v.deferred_pointer} | inner.pointers)

        texts = []
        given, within = inside([training.model.var, *training.source.variables])
        text, call = function("train_epoch", given, [("int", "epoch")], lambda inner: training.epoch(within(inner)), "epoch_loss")
        texts.append(text)
        evaluation = []
        if training.test:
            given, within = inside([training.model.var, *training.test])
            text, test_call = function("evaluate", given, [], lambda inner: training.evaluation(within(inner)), "test_loss")
            texts.append(text)
            evaluation = [f"{test_call};"]
        statements = []
        for var in [training.model.var, *training.source.variables, *training.test, training.optimizer.var]:
            statements.append(var.assignment if var in kept else var.declaration())
            if var is training.model.var:
                statements.append(training.model_statements(reach))
        loop = self.loop(reach, [f"double epoch_loss = {call};"], evaluation)
        prelude = self._prelude()
        return self._one_file(prelude + [declared] + texts + [self.main([[s for s in statements if s], loop])])

    def _class(self):
        """A trainer that has model and optimizer as members."""
        training, choose = self.training, self.choices
        model, opt = training.model.var, training.optimizer.var
        name = choose.pick("trainer", ["Trainer", "Solver", "Experiment"])
        deferred = training.optimizer.groups or choose.flag("pointer_member", 0.4)
        members = Reach({v.name for v in (model, opt) if (v.pointer if v is model else deferred)})
        others = training.source.variables
        init = [f"{model.name}({model.args})"] + ([] if deferred else [f"{opt.name}({opt.args})"])
        if self.device:
            init.insert(0, "device(device)")
        lines = [f"class {name} {{", "public:", f"explicit {name}({'torch::Device device' if self.device else ''})"]
        lines += [(": " if i == 0 else "  ") + text + ("," if i + 1 < len(init) else " {") for i, text in enumerate(init)]
        lines += [training.model_statements(members)]
        if deferred:
            lines.append(opt.assignment)
        lines.append("}")

        def method(called, variables, extra, body, result):
            text, call = function(called, variables, extra,
                                  lambda inner: body(Reach(members.pointers | inner.pointers)), result)
            return text, call

        text, epoch_call = method("train_epoch", others, [("int", "epoch")], training.epoch, "epoch_loss")
        lines += text
        evaluation = []
        if training.test:
            text, test_call = method("evaluate", training.test, [], training.evaluation, "test_loss")
            lines += text
            evaluation = [f"{test_call};"]
        # fit: the loop over epochs, in the class too; its loaders have types of their own.
        variables = others + training.test
        text, fit_call = method("fit", variables, [], lambda inner: self.loop(
            inner, [f"double epoch_loss = {self.forwarded(epoch_call, variables)};"], [self.forwarded(e, variables) for e in evaluation], False), "weights_sum")
        lines += text
        lines += ["private:"] if choose.flag("private_members", 0.6) else []
        if self.device:
            lines.append("torch::Device device;")
        lines += [f"{model.type} {model.name};", opt.deferred.replace("shared_ptr", "unique_ptr") if deferred and "shared" not in opt.assignment else
                  opt.deferred if deferred else f"torch::optim::{training.optimizer.kind} {opt.name};", "};"]
        made = f"{name} trainer{'(device)' if self.device else ''};"
        statements = [[var.declaration() for var in self.devices], made, [var.declaration() for var in variables]]
        statements += [f"double final_sum = trainer.{fit_call};", *self.outputs.say(["final ", ("number", "final_sum")])]
        return self._one_file(self._prelude() + [lines, self.main(statements)])

    @staticmethod
    def forwarded(call, variables):
        """The call with variables that are references already."""
        for var in variables:
            if var.passed == f"*{var.name}" and not var.parameter_is_pointer:
                call = re.sub(rf"\*{var.name}\b", var.name, call)
        return call

    def _experiment(self):
        """The whole training in a function, called twice, or in a loop."""
        reach = reach_of(self.all_variables(), "pointer")
        epoch, evaluation = self.inline_parts(reach)
        texts = []
        if self.choices.flag("experiment_functions"):
            texts, epoch, evaluation = self.calls()
        body = [self.setup(), self.loop(reach, epoch, evaluation, False)]
        if self.choices.flag("fold_loop"):
            return self._one_file(self._prelude() + texts + [self.main(["for (int fold = 0; fold < 2; ++fold) {",
                                                                       self.outputs.say(["fold ", ("count", "fold")]), body, "}"])])
        text = ["double run_experiment(int number) {", self.outputs.say(["experiment ", ("count", "number")]), body, "return weights_sum;", "}"]
        calls = ["double first = run_experiment(1);", "double second = run_experiment(2);",
                 *self.outputs.say(["both ", ("number", "first + second")])]
        return self._one_file(self._prelude() + texts + [text, self.main(calls)])

    def _split(self):
        """Model and data in one header, the training functions in another."""
        reach = reach_of(self.all_variables(), "pointer")
        texts, epoch, evaluation = self.calls()
        includes = [f"#include <{h}>" for h in HEADERS]
        guard = ["#pragma once\n"]
        files = {"model.h": self.text(includes, self._prelude(), guard),
                 "training.h": "#pragma once\n\n#include \"model.h\"\n\n" + self.text([], texts),
                 "main.cpp": "#include \"training.h\"\n\n" + self.text([], [self.main([self.setup(), self.loop(reach, epoch, evaluation)])])}
        return Program(files)

    def _two_sources(self):
        """The functions in a source of their own, where they are no templates."""
        training = self.training
        reach = reach_of(self.all_variables(), "pointer")
        texts, epoch, evaluation = self.calls()
        if any(line.startswith("template") for text in texts for line in text[:1]):
            return self._split()
        declarations = [[re.sub(r" \{$", ";", text[0])] for text in texts]
        includes = [f"#include <{h}>" for h in HEADERS]
        prelude = [[inlined(line) for line in part_lines] for part_lines in (list(flat(part)) for part in self._prelude())]
        files = {"model.h": self.text(includes, prelude, ["#pragma once\n"]),
                 "training.h": "#pragma once\n\n#include \"model.h\"\n\n" + self.text([], declarations),
                 "training.cpp": "#include \"training.h\"\n\n" + self.text([], texts),
                 "main.cpp": "#include \"training.h\"\n\n" + self.text([], [self.main([self.setup(), self.loop(reach, epoch, evaluation)])])}
        return Program(files, ["main.cpp", "training.cpp"])


class SpecialComposer(Composer):
    """The structures of special trainings: all statements in one place."""

    def __init__(self, choices, special, outputs):
        self.choices, self.training, self.outputs = choices, special, outputs
        self.form = choices.pick("structure", ["main", "function", "class", "lambda", "namespace", "twice"], [5, 2, 2, 1, 1, 1])

    def compose(self):
        special, choose = self.training, self.choices
        prelude = [self._constants(), *special.types, self.outputs.types]
        body = [special.setup, special.loop]
        if self.form == "main":
            return self._one_file(prelude + [self.main(body)])
        if self.form == "lambda":
            return self._one_file(prelude + [self.main(["auto run = [&]() {", body, "};", "run();"])])
        if self.form == "class":
            name = choose.pick("trainer", ["Trainer", "App", "Learner"])
            return self._one_file(prelude + [[f"class {name} {{", "public:", "void run() {", body, "}", "};"], self.main([f"{name} it;", "it.run();"])])
        calls = ["train();", "train();"] if self.form == "twice" else ["train();"]
        head = choose.pick("static", ["void train() {", "static void train() {", "int train() {"])
        text = [head, body, *(["return 0;"] if head.startswith("int") else []), "}"]
        if self.form == "namespace":
            text = ["namespace {", *text, "}"]
        return self._one_file(prelude + [text, self.main(calls)])


def flat(lines):
    for line in lines:
        if isinstance(line, str):
            yield from line.split("\n")
        else:
            yield from flat(line)


def inlined(line):
    """A function at the beginning of a line of a header is inline."""
    if re.match(r"(std::|void |double )[^=;]*\) \{$", line) and not re.match(r"(double|void|std::\S+) (next|reset|apply)\(", line) \
            and " override" not in line and " const {" not in line and "operator()" not in line:
        return "inline " + line
    return line


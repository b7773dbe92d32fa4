"""Where batches come from: data sets with loaders, and batches made by hand."""

from dataclasses import dataclass, field
from typing import Callable, List

from text import Var


@dataclass
class Task:
    """What is learned: the tensors, and what the model must make of them."""

    kind: str  # classes, values, tokens, copies
    inputs: str  # text of the inputs' sizes behind the rows: "5" or "1, 8, 8"
    outputs: int  # classes or values
    shape: str  # vector, image, sequence, tokens, autoencoder
    model_sizes: tuple = ()
    dataset: str = "ToyDataset"  # the name of its data set class
    host_draws: str = ""  # what it draws numbers from that are not LibTorch's: "engine" or "rand"


def make_task(choices, real):
    shape = choices.pick("shape", ["vector", "image", "sequence", "tokens", "autoencoder"], [4, 3, 2, 2, 1])
    if shape == "tokens":
        words, steps = choices.integer("words", 7, 11), choices.integer("steps", 4, 6)
        return Task("tokens", f"{steps}", words, shape, (words, steps))
    if shape == "autoencoder":
        size = choices.integer("features", 4, 8)
        return Task("copies", f"{size}", size, shape, (size,))
    kind = choices.pick("kind", ["classes", "values"])
    outputs = choices.integer("classes", 3, 5) if kind == "classes" else choices.integer("values", 1, 2)
    if shape == "vector":
        size = choices.integer("features", 3, 8)
        return Task(kind, f"{size}", outputs, shape, (size, outputs))
    if shape == "image":
        channels, side = choices.integer("channels", 1, 3), choices.integer("side", 6, 9)
        return Task(kind, f"{channels}, {side}, {side}", outputs, shape, (channels, side, outputs))
    features, steps = choices.integer("features", 2, 4), choices.integer("steps", 4, 7)
    return Task(kind, f"{steps}, {features}", outputs, shape, (features, steps, outputs))


def make_values(task, real, rows, x, y, declare="auto "):
    """Statements that make the inputs and targets of `rows` rows."""
    if task.kind == "tokens":
        return [f"{declare}{x} = torch::randint(0, {task.outputs}, {{{rows}, {task.inputs}}}, torch::kLong);",
                f"{declare}{y} = ({x} * 2 + 1).remainder({task.outputs});"]
    lines = [f"{declare}{x} = torch::randn({{{rows}, {task.inputs}}}{real});"]
    if task.kind == "copies":
        lines.append(f"{declare}{y} = {x}.clone();")
    elif task.kind == "classes":
        lines.append(f"{declare}{y} = ({x}.flatten(1).sum(1) * 2.0).floor().remainder({task.outputs}).to(torch::kLong);")
    elif task.outputs == 1:
        lines.append(f"{declare}{y} = torch::sin({x}.flatten(1).sum(1, true));")
    else:
        lines.append(f"{declare}{y} = torch::stack({{torch::sin({x}.flatten(1).sum(1)), {x}.flatten(1).mean(1)}}, 1);")
    return lines


@dataclass
class Source:
    """A way to come by batches. Expressions are functions of the place's Reach."""

    types: List[str] = field(default_factory=list)  # before main
    variables: List[Var] = field(default_factory=list)  # what a training function must be given
    setup: List[str] = field(default_factory=list)  # statements in front of the variables
    head: Callable = None  # reach -> the line that opens the loop over batches, without brace
    fetch: Callable = None  # reach -> statements that make x and y
    loads: bool = False  # torch's loader
    includes: List[str] = field(default_factory=list)
    before: Callable = None  # reach -> statements in front of the loop
    single: bool = False  # one batch an epoch: no loop
    step_ends: List[str] = field(default_factory=list)
    whole: bool = False  # each epoch must read it to its end


def dataset_type(task, real, name, choices):
    """A data set class whose constructor makes the tensors."""
    lines = [f"class {name} : public torch::data::datasets::Dataset<{name}> {{", "public:",
             f"explicit {name}(int64_t rows) {{"]
    lines += make_values(task, real, "rows", "inputs_", "targets_", "")
    lines += ["}", "torch::data::Example<> get(size_t index) override {"]
    if task.host_draws == "engine":
        lines += ["std::uniform_real_distribution<double> noise(-0.05, 0.05);",
                  "return {inputs_[index] + noise(engine_), targets_[index]};"]
    elif task.host_draws == "rand":
        lines += ["return {inputs_[index] + 0.01 * (std::rand() % 7), targets_[index]};"]
    else:
        lines += choices.pick("get", [["return {inputs_[index], targets_[index]};"],
                                      ["auto i = static_cast<int64_t>(index);", "return {inputs_[i].clone(), targets_[i].clone()};"]])
    lines += ["}", "torch::optional<size_t> size() const override {", "return inputs_.size(0);", "}", "private:",
              "torch::Tensor inputs_, targets_;"]
    return lines + (["std::mt19937 engine_{7};"] if task.host_draws == "engine" else []) + ["};"]


class Sizes:
    """Rows and batch size of one set."""

    def __init__(self, choices, two_rows):
        self.batch = choices.pick("batch", [8, 2, 3, 4, 5, 6, 7, 12, 16])
        if two_rows and self.batch < 4:
            self.batch = 4
        self.rows = choices.integer("full_batches", 1, 4) * self.batch + choices.integer("last_rows", 0, self.batch - 1)
        self.drop_last = choices.flag("drop_last", 0.15)
        if two_rows and self.rows % self.batch == 1:
            self.rows += 1
        self.two_rows = two_rows


def loader_options(choices, sizes, batch_text, training, most_workers):
    workers = choices.pick("workers", [None, 0, 1, 2], [5, 1, 1, 1])
    workers = workers and min(workers, most_workers)
    drop = sizes.drop_last and training
    if workers is None and not drop:
        return choices.pick("options_form", [batch_text, f"torch::data::DataLoaderOptions().batch_size({batch_text})",
                                             f"torch::data::DataLoaderOptions({batch_text})"])
    text = f"torch::data::DataLoaderOptions().batch_size({batch_text})"
    text += f".workers({workers})" if workers is not None else ""
    return text + (".drop_last(true)" if drop else "")


def loader_source(choices, task, real, sizes, x, y, device, purpose, training=True):
    """A data set and make_data_loader, in the forms of their loops."""
    collate = choices.pick("collate", ["Stack", "examples"], [5, 1])
    data_type = task.dataset
    sampler = choices.pick("sampler", ["Random", "Sequential", "default"]) if training else "Sequential"
    variable = "train_loader" if training else "test_loader"
    dataset = "train_dataset" if training else "test_dataset"
    rows, batch = ("train_rows", "batch_size") if training else ("test_rows", "test_batch")
    sampler_type = f"torch::data::samplers::{'Random' if sampler == 'default' else sampler}Sampler"
    mapped = f".map(torch::data::transforms::Stack<>())" if collate == "Stack" else ""
    scaled = collate == "Stack" and task.kind != "tokens" and choices.flag("lambda_transform", 0.15)
    if scaled:
        mapped = (".map(torch::data::transforms::Lambda<torch::data::Example<>>([](torch::data::Example<> example) {\n"
                  "example.data = example.data * 0.5 + 0.1;\nreturn example;\n}))" + mapped)
    lines = [f"auto {dataset} = {data_type}({rows}){mapped};"]
    if training and task.kind != "tokens":
        task.host_draws = choices.pick("host_draws", ["", "engine", "rand"], [8, 1, 1])
    # Threads that draw from one generator, or take turns, give other numbers in each run.
    options = loader_options(choices, sizes, batch, training, {"": 2, "engine": 1, "rand": 0}[task.host_draws])
    template = "" if sampler == "default" else f"<{sampler_type}>"
    move = choices.pick("move", [f"std::move({dataset})", dataset])
    lines.append(f"auto {variable} = torch::data::make_data_loader{template}({move}, {options});")
    set_type = data_type if collate == "examples" else f"torch::data::datasets::MapDataset<{data_type}, torch::data::transforms::Stack<>>"
    loader_type = f"torch::data::StatelessDataLoader<{set_type}, {sampler_type}>"
    spelled = not scaled  # a lambda's type has a name, but nobody writes it
    var = Var(variable, f"std::unique_ptr<{loader_type}>" if spelled else "auto", "", pointer=True,
              parameter=f"{'DataLoader' if training else 'Loader'}& {variable}", parameter_is_pointer=False, passed=f"*{variable}",
              template="DataLoader" if training else "Loader", local="\n".join(lines),
              deferred=f"std::unique_ptr<{loader_type}> {variable};" if spelled else "",
              assignment="\n".join(lines[:-1] + [lines[-1].replace(f"auto {variable}", variable)]) if spelled else "")

    form = choices.pick("loop", ["range", "const_range", "copy_range", "iterator", "while_iterator", "example_range"] + (["one_batch"] if training else []), [6, 2, 1, 1, 1, 1] + ([1] if training else []))
    if form == "example_range" and collate == "examples":
        form = "range"
    # Batches that workers have begun must all be read before LibTorch begins another epoch.
    whole = any(f".workers({number})" in options for number in (1, 2))
    if form == "one_batch" and whole:
        form = "range"
    batch_name = choices.pick("batch_name", ["batch", "example", "b"])

    def head(reach):
        begin = f"{reach.dot(variable)}begin()"
        end = f"{reach.dot(variable)}end()"
        if form == "iterator":
            return f"for (auto it = {begin}; it != {end}; ++it)"
        if form == "while_iterator":
            return f"while (it != {end})"
        if form == "one_batch":
            return "for (int step = 0; step < 3; ++step)"
        how = {"range": "auto&", "example_range": "torch::data::Example<>&", "const_range": "const auto&",
               "copy_range": "auto"}[form]
        return f"for ({how} {batch_name} : {reach.object(variable)})"

    def before(reach):
        if form == "one_batch":
            return [f"auto {batch_name} = *{reach.dot(variable)}begin();"]
        return [f"auto it = {reach.dot(variable)}begin();"] if form == "while_iterator" else []

    source_is_pointer = "iterator" in form
    item = "it->" if source_is_pointer else f"{batch_name}."
    to_device = f".to({device})" if device else ""
    declared = choices.pick("declared", ["auto", "torch::Tensor"])

    def fetch(reach):
        if collate == "examples":
            whole = "*it" if source_is_pointer else batch_name
            result = ["std::vector<torch::Tensor> data_rows, target_rows;", f"for (auto& e : {whole}) {{" if form != "const_range" else
                      f"for (const auto& e : {whole}) {{", "data_rows.push_back(e.data);", "target_rows.push_back(e.target);", "}",
                      f"{declared} {x} = torch::stack(data_rows){to_device};", f"{declared} {y} = torch::stack(target_rows){to_device};"]
        else:
            result = [f"{declared} {x} = {item}data{to_device};", f"{declared} {y} = {item}target{to_device};"]
        return result + (["++it;"] if form == "while_iterator" else [])

    includes = {"engine": ["random"], "rand": ["cstdlib"]}.get(task.host_draws, [])
    return Source(dataset_type(task, real, data_type, choices), [var], [], head, fetch, True, includes=includes, before=before, whole=whole)


def tensors(task, real, sizes, choices):
    """The whole training set in two variables."""
    lines = make_values(task, real, "train_rows", "inputs", "targets", "torch::Tensor ")
    style = choices.pick("tensor_parameter", ["const torch::Tensor&", "torch::Tensor"])
    result = []
    for line, name in zip(lines, ("inputs", "targets")):
        result.append(Var(name, "torch::Tensor", parameter=f"{style} {name}", local=line,
                          deferred=f"torch::Tensor {name};", assignment=line.replace("torch::Tensor ", "", 1)))
    return result


def sliced_source(choices, task, real, sizes, x, y, device):
    """Index arithmetic over tensors that hold the whole set."""
    form = choices.pick("slicing", ["slice", "narrow", "permuted", "index_slice", "split", "windows", "shuffled_vector", "rows_stacked"])
    to_device = f".to({device})" if device else ""
    last = "train_rows"
    if sizes.drop_last:
        last = "train_rows - batch_size + 1"
    includes = []
    before = lambda reach: []
    head = lambda reach: f"for (int64_t start = 0; start < {last}; start += batch_size)"
    end = "std::min<int64_t>(start + batch_size, train_rows)"
    stop = [f"const int64_t end = {end};"]
    if form == "slice":
        fetch = [*stop, f"auto {x} = inputs.slice(0, start, end){to_device};", f"auto {y} = targets.slice(0, start, end){to_device};"]
    elif form == "narrow":
        fetch = [f"const int64_t count = std::min<int64_t>(batch_size, train_rows - start);",
                 f"auto {x} = inputs.narrow(0, start, count){to_device};", f"auto {y} = targets.narrow(0, start, count){to_device};"]
    elif form == "index_slice":
        fetch = [*stop, f"torch::Tensor {x} = inputs.index({{torch::indexing::Slice(start, end)}}){to_device};",
                 f"torch::Tensor {y} = targets.index({{torch::indexing::Slice(start, end)}}){to_device};"]
    elif form == "permuted":
        before = lambda reach: ["auto order = torch::randperm(train_rows, torch::kLong);"]
        take = choices.pick("take", ["index_select(0, rows)", "index({rows})"])
        fetch = [*stop, "auto rows = order.slice(0, start, end);", f"auto {x} = inputs.{take}{to_device};",
                 f"auto {y} = targets.{take}{to_device};"]
    elif form == "split":
        before = lambda reach: ["auto input_parts = inputs.split(batch_size);", "auto target_parts = targets.split(batch_size);"]
        head = lambda reach: "for (size_t part = 0; part < input_parts.size(); ++part)"
        fetch = [f"auto {x} = input_parts[part]{to_device};", f"auto {y} = target_parts[part]{to_device};"]
    elif form == "windows":
        head = lambda reach: "for (int64_t step = 0; step < 4; ++step)"
        fetch = ["auto rows = torch::randint(0, train_rows, {batch_size}, torch::kLong);",
                 f"auto {x} = inputs.index_select(0, rows){to_device};", f"auto {y} = targets.index_select(0, rows){to_device};"]
    elif form == "shuffled_vector":
        includes = ["algorithm", "numeric", "random"]
        before = lambda reach: ["std::vector<int64_t> order(train_rows);", "std::iota(order.begin(), order.end(), 0);",
                                "std::mt19937 engine(17);", "std::shuffle(order.begin(), order.end(), engine);"]
        fetch = [*stop, "auto rows = torch::tensor(std::vector<int64_t>(order.begin() + start, order.begin() + end), torch::kLong);",
                 f"auto {x} = inputs.index_select(0, rows){to_device};", f"auto {y} = targets.index_select(0, rows){to_device};"]
    else:
        fetch = [*stop, "std::vector<torch::Tensor> input_rows, target_rows;", "for (int64_t i = start; i < end; ++i) {",
                 "input_rows.push_back(inputs[i]);", "target_rows.push_back(targets[i]);", "}",
                 f"auto {x} = torch::stack(input_rows){to_device};", f"auto {y} = torch::stack(target_rows){to_device};"]
    return Source([], tensors(task, real, sizes, choices), [], head, lambda reach: fetch, includes=includes + ["algorithm"], before=before)


def whole_source(choices, task, real, sizes, x, y, device):
    """The whole set in each step."""
    to_device = f".to({device})" if device else ""
    return Source([], tensors(task, real, sizes, choices), [], lambda reach: "for (int step = 0; step < 3; ++step)",
                  lambda reach: [f"auto {x} = inputs{to_device};", f"auto {y} = targets{to_device};"], before=lambda reach: [])


def ready_source(choices, task, real, sizes, x, y, device):
    """A vector of batches that a function has made."""
    pair = choices.pick("batch_type", ["std::pair<torch::Tensor, torch::Tensor>", "Batch"])
    types = []
    if pair == "Batch":
        types += ["struct Batch {", "torch::Tensor inputs;", "torch::Tensor targets;", "};"]
    types += [f"std::vector<{pair}> make_batches(int64_t rows, int64_t size) {{"]
    types += make_values(task, real, "rows", "all", "wanted")
    types += [f"std::vector<{pair}> result;", "for (int64_t start = 0; start < rows; start += size) {",
              "auto end = std::min(start + size, rows);",
              choices.pick("append", ["result.push_back({all.slice(0, start, end), wanted.slice(0, start, end)});",
                                      "result.emplace_back(" + ("Batch{" if pair == "Batch" else "")
                                      + "all.slice(0, start, end), wanted.slice(0, start, end)" + ("}" if pair == "Batch" else "") + ");"]),
              "}", "return result;", "}"]
    var = Var("batches", f"std::vector<{pair}>", parameter=f"const std::vector<{pair}>& batches",
              local="auto batches = make_batches(train_rows, batch_size);", deferred=f"std::vector<{pair}> batches;",
              assignment="batches = make_batches(train_rows, batch_size);")
    to_device = f".to({device})" if device else ""
    first, second = (".inputs", ".targets") if pair == "Batch" else (".first", ".second")
    form = choices.pick("loop", ["range", "index", "binding"])
    if form == "binding" and not device:
        return Source(types, [var], [], lambda reach: f"for (const auto& [{x}, {y}] : batches)", lambda reach: [],
                      before=lambda reach: [], includes=["algorithm", "vector"])
    if form == "index":
        return Source(types, [var], [], lambda reach: "for (size_t k = 0; k < batches.size(); ++k)",
                      lambda reach: [f"auto {x} = batches[k]{first}{to_device};", f"auto {y} = batches[k]{second}{to_device};"],
                      before=lambda reach: [], includes=["algorithm", "vector"])
    return Source(types, [var], [], lambda reach: "for (const auto& batch : batches)",
                  lambda reach: [f"auto {x} = batch{first}{to_device};", f"auto {y} = batch{second}{to_device};"],
                  before=lambda reach: [], includes=["algorithm", "vector"])


def generated_source(choices, task, real, sizes, x, y, device):
    """A function that makes a new batch at each call."""
    form = choices.pick("returns", ["pair", "tuple", "references"])
    to_device = f".to({device})" if device else ""
    if form == "references":
        types = ["void next_batch(int64_t size, torch::Tensor& x, torch::Tensor& y) {"] + make_values(task, real, "size", "x", "y", "") + ["}"]
        fetch = [f"torch::Tensor {x}, {y};", f"next_batch(batch_size, {x}, {y});"]
    else:
        kind = "std::pair" if form == "pair" else "std::tuple"
        types = [f"{kind}<torch::Tensor, torch::Tensor> next_batch(int64_t size) {{"] + make_values(task, real, "size", "x", "y") + \
                ["return {x, y};", "}"]
        fetch = choices.pick("unpack", [[f"auto [{x}, {y}] = next_batch(batch_size);"],
                                        [f"torch::Tensor {x}, {y};", f"std::tie({x}, {y}) = next_batch(batch_size);"],
                                        ["auto made = next_batch(batch_size);", f"auto {x} = std::get<0>(made);", f"auto {y} = std::get<1>(made);"]])
    if to_device:
        fetch = fetch + [f"{x} = {x}{to_device};", f"{y} = {y}{to_device};"]
    return Source(types, [], [], lambda reach: "for (int step = 0; step < 4; ++step)", lambda reach: fetch,
                  before=lambda reach: [], includes=["tuple", "utility"])


def functor_source(choices, task, real, sizes, x, y, device):
    """A loader class of the program's own."""
    form = choices.pick("own_loader", ["next", "has_next", "call"])
    types = ["class BatchLoader {", "public:", "BatchLoader(int64_t rows, int64_t batch) : rows_(rows), batch_(batch) {"]
    types += make_values(task, real, "rows", "inputs_", "targets_", "")
    types += ["order_ = torch::arange(rows, torch::kLong);", "}", "void reset() {", "at_ = 0;"]
    if choices.flag("own_shuffle"):
        types += ["order_ = torch::randperm(rows_, torch::kLong);"]
    types += ["}"]
    take = ["auto rows = order_.slice(0, at_, std::min(at_ + batch_, rows_));", "at_ += batch_;"]
    to_device = f".to({device})" if device else ""
    after = [f"{x} = {x}{to_device};", f"{y} = {y}{to_device};"] if device else []
    if form == "has_next":
        types += ["bool has_next() const {", "return at_ < rows_;", "}", "std::pair<torch::Tensor, torch::Tensor> next() {", *take,
                  "return {inputs_.index_select(0, rows), targets_.index_select(0, rows)};", "}"]
        head = lambda reach: f"while ({reach.dot('batches')}has_next())"
        fetch = lambda reach: [f"auto [{x}, {y}] = {reach.dot('batches')}next();"] + after
        before = lambda reach: [f"{reach.dot('batches')}reset();"]
    else:
        method = "bool operator()" if form == "call" else "bool next"
        types += [f"{method}(torch::Tensor& x, torch::Tensor& y) {{", "if (at_ >= rows_) {", "return false;", "}", *take,
                  "x = inputs_.index_select(0, rows);", "y = targets_.index_select(0, rows);", "return true;", "}"]
        head = lambda reach: f"while (batches({x}, {y}))" if form == "call" else f"while ({reach.dot('batches')}next({x}, {y}))"
        fetch = lambda reach: after
        before = lambda reach: [f"{reach.dot('batches')}reset();", f"torch::Tensor {x}, {y};"]
    types += ["private:", "torch::Tensor inputs_, targets_, order_;", "int64_t rows_, batch_, at_ = 0;", "};"]
    var = Var("batches", "BatchLoader", "train_rows, batch_size")
    return Source(types, [var], [], head, fetch, before=before, includes=["algorithm", "utility"])


SOURCES = {"loader": loader_source, "sliced": sliced_source, "whole": whole_source, "ready": ready_source,
           "generated": generated_source, "functor": functor_source}


def make_source(choices, task, real, sizes, x, y, device):
    form = choices.pick("source", list(SOURCES), [8, 5, 1, 2, 2, 2])
    if form == "loader":
        return loader_source(choices, task, real, sizes, x, y, device, "train")
    return SOURCES[form](choices, task, real, sizes, x, y, device)

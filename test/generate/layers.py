"""Models: layers from a grammar, in the forms in which people write modules."""

from dataclasses import dataclass, field
from typing import List

from text import Var


@dataclass
class Layer:
    name: str = ""  # member; empty for what has no parameters of its own
    type: str = ""  # the class in torch::nn
    args: str = ""
    call: str = "x = {n}->forward(x);"  # lines of forward
    sequential: str = ""  # the element of nn::Sequential; empty: cannot be one
    declared: str = ""  # a member that is no module


@dataclass
class Model:
    types: List[str]  # definitions before main
    var: Var
    is_sequential: bool = False
    needs_two_rows: bool = False  # a norm over the batch: one row has no variance
    has_key_bias: bool = False  # of LibTorch's attention: its gradient is nothing but rounding
    includes: List[str] = field(default_factory=list)

    def call(self, reach, arguments, style="forward"):
        """The model applied to its arguments."""
        if style == "call" and self.var.name in reach.pointers and self.callable:
            return f"{self.var.name}({arguments})"
        return f"{reach.dot(self.var.name)}forward({arguments})"

    callable: bool = False  # a holder: `net(x)`


ACTIVATIONS = [("torch::relu(x)", "torch::nn::ReLU()"), ("torch::tanh(x)", "torch::nn::Tanh()"),
               ("torch::sigmoid(x)", "torch::nn::Sigmoid()"), ("torch::gelu(x)", "torch::nn::GELU()"),
               ("torch::leaky_relu(x, 0.1)", "torch::nn::LeakyReLU(torch::nn::LeakyReLUOptions().negative_slope(0.1))"),
               ("torch::silu(x)", "torch::nn::SiLU()"), ("torch::elu(x)", "torch::nn::ELU()"),
               ("torch::nn::functional::softplus(x)", "torch::nn::Softplus()"),
               ("x.clamp_min(0)", "torch::nn::ReLU6()")]


class Grammar:
    """Makes the layers of one model. `x` is the value that is handed on."""

    def __init__(self, choices, real):
        self.choices = choices
        self.real = real  # ", torch::kDouble" where the default type is float
        self.layers = []
        self.needs_two_rows = False
        self.has_key_bias = False
        self.count = 0

    def add(self, **fields):
        if "name" in fields and fields["name"]:
            self.count += 1
            fields["name"] = f"{fields['name']}{self.count}"
        layer = Layer(**fields)
        layer.call = layer.call.replace("{n}", layer.name)
        self.layers.append(layer)
        return layer.name

    def module(self, name, type_, args, sequential=True):
        return self.add(name=name, type=type_, args=args, sequential=f"torch::nn::{type_}({args})" if sequential else "")

    def function(self, text, sequential=""):
        self.add(call=f"x = {text};", sequential=sequential)

    def activation(self, key):
        text, sequential = self.choices.pick(f"activation{key}", ACTIVATIONS)
        # ReLU6 is only the Sequential's neighbour of clamp_min, not its equal; either is deterministic.
        self.function(text, sequential)

    def dropout(self, key, kind="Dropout"):
        if self.choices.flag(f"dropout{key}", 0.25):
            if self.choices.flag(f"dropout_function{key}", 0.3) and kind == "Dropout":
                self.function("torch::dropout(x, 0.2, is_training())")
            else:
                self.module("drop", kind, "0.25")

    def hidden(self, key, inputs, outputs):
        """Linear, perhaps a norm, an activation, perhaps dropout."""
        norm = self.choices.pick(f"norm{key}", ["", "BatchNorm1d", "LayerNorm"], [6, 2, 1])
        # No bias anywhere in front of a norm over the batch: its gradient can be rounding, of
        # which Adam makes steps. So such a norm is behind the first layer only.
        if norm == "BatchNorm1d" and self.layers:
            norm = ""
        if norm == "BatchNorm1d":
            self.module("fc", "Linear", f"torch::nn::LinearOptions({inputs}, {outputs}).bias(false)")
        else:
            self.module("fc", "Linear", f"{inputs}, {outputs}")
        if norm == "BatchNorm1d":
            self.needs_two_rows = True
            self.module("bn", "BatchNorm1d", f"{outputs}")
        elif norm == "LayerNorm":
            self.module("ln", "LayerNorm", f"torch::nn::LayerNormOptions({{{outputs}}})")
        self.activation(key)
        self.dropout(key)

    def own_tensor(self, width):
        """A parameter or buffer of the model's own, over the last dimension."""
        kind = self.choices.pick("own_tensor", ["", "scale", "shift", "running"], [8, 1, 1, 1])
        made = f"torch::{'ones' if kind == 'scale' else 'zeros'}({{{width}}}{self.real})"
        if kind in ("scale", "shift"):
            self.add(declared=f'torch::Tensor {kind} = register_parameter("{kind}", {made});', call=f"x = x {'*' if kind == 'scale' else '+'} {kind};")
        elif kind == "running":
            # A mean over the batch that is kept, as norms do.
            self.add(declared=f'torch::Tensor running = register_buffer("running", {made});',
                     call="if (is_training()) {\ntorch::NoGradGuard no_grad;\nrunning.mul_(0.9).add_(x.mean(0), 0.1);\n}\nx = x - 0.1 * running;")

    def vector(self, inputs, outputs):
        width = self.choices.integer("width", 5, 12)
        at = inputs
        for key in range(self.choices.integer("depth", 1, 3)):
            if key and self.choices.flag(f"residual{key}", 0.25):
                name = f"skip{key}"
                self.add(name=name, type="Linear", args=f"{width}, {width}", call="x = x + torch::tanh({n}->forward(x));")
                continue
            self.hidden(key, at, width)
            at = width
        self.own_tensor(at)
        self.module("out", "Linear", f"{at}, {outputs}")

    def image(self, channels, side, outputs):
        key, at = 0, channels
        for key in range(self.choices.integer("depth", 1, 2)):
            out = self.choices.integer(f"channels{key}", 2, 3) * 2
            norm = self.choices.pick(f"norm{key}", ["", "BatchNorm2d", "GroupNorm", "InstanceNorm2d"], [5, 3, 1, 1])
            bias = ".bias(false)" if norm else ""
            stride = self.choices.pick(f"stride{key}", [1, 2], [4, 1]) if side >= 6 else 1
            self.module("conv", "Conv2d", f"torch::nn::Conv2dOptions({at}, {out}, 3).padding(1).stride({stride}){bias}")
            side = (side - 1) // stride + 1
            if norm == "GroupNorm":
                self.module("gn", norm, f"torch::nn::GroupNormOptions(2, {out})")
            elif norm:
                self.module("bn", norm, f"{out}")
            self.activation(key)
            self.dropout(key, "Dropout2d")
            if side >= 4:
                pool = self.choices.pick(f"pool{key}", ["torch::max_pool2d(x, 2)", "torch::avg_pool2d(x, 2)",
                                                        "torch::nn::functional::max_pool2d(x, torch::nn::functional::MaxPool2dFuncOptions(2))", ""])
                if pool:
                    kind = "Avg" if "avg" in pool else "Max"
                    self.function(pool, f"torch::nn::{kind}Pool2d(torch::nn::{kind}Pool2dOptions(2))")
                    side //= 2
            at = out
        size = at * side * side
        flat = self.choices.pick("flatten", [f"x.view({{-1, {size}}})", "x.flatten(1)", "torch::flatten(x, 1)",
                                             "x.view({x.size(0), -1})", "x.reshape({x.sizes()[0], -1})", "mean"])
        if flat == "mean":
            self.function("x.mean({2, 3})")
            size = at
        else:
            self.function(flat, "torch::nn::Flatten()")
        if self.choices.flag("two_heads", 0.3):
            self.hidden("head", size, 8)
            size = 8
        self.module("out", "Linear", f"{size}, {outputs}")

    def recurrent(self, inputs, hidden, per_step):
        """An LSTM, GRU or RNN over [batch, time, inputs]; per_step keeps the time."""
        kind = self.choices.pick("recurrent", ["LSTM", "GRU", "RNN"])
        first = self.choices.flag("batch_first", 0.7)
        layers = self.choices.pick("recurrent_layers", [1, 2], [4, 1])
        both = self.choices.pick("directions", [1, 2], [4, 1])
        options = f"torch::nn::{kind}Options({inputs}, {hidden})" + (".batch_first(true)" if first else "")
        options += f".num_layers({layers})" if layers > 1 else ""
        options += ".bidirectional(true)" if both > 1 else ""
        states = self.choices.pick("states", ["none", "size", "options"])
        make = "x.options()" if states == "options" else self.real[2:]
        rows = f"{layers * both}, x.size({0 if first else 1}), {hidden}"
        zeros = f"torch::zeros({{{rows}}}{', ' + make if make else ''})"
        call = [] if first else ["x = x.transpose(0, 1);"]
        if states == "none":
            call.append("auto states = {n}->forward(x);")
        elif kind == "LSTM":
            call += [f"auto h0 = {zeros};", f"auto c0 = {zeros};",
                     "auto states = {n}->forward(x, std::make_tuple(h0, c0));"]
        else:
            call += [f"auto h0 = {zeros};", "auto states = {n}->forward(x, h0);"]
        call.append("x = std::get<0>(states);")
        if per_step:
            call += [] if first else ["x = x.transpose(0, 1);"]
        else:
            last = self.choices.pick("last_step", ["select", "index", "mean"])
            axis = 1 if first else 0
            call.append({"select": f"x = x.select({axis}, -1);",
                         "index": "x = x.index({torch::indexing::Slice(), -1});" if first else "x = x[-1];",
                         "mean": f"x = x.mean({axis});"}[last])
        self.add(name=kind.lower(), type=kind, args=options, call="\n".join(call))
        return hidden * both

    def attention(self, width, causal):
        """Attention by hand, or LibTorch's encoder layer."""
        form = self.choices.pick("attention", ["by_hand", "encoder_layer", "multihead", "scaled_dot_product"])
        self.has_key_bias = form in ("encoder_layer", "multihead")
        if form == "encoder_layer":
            call = ["x = x.transpose(0, 1);"]
            mask = ""
            if causal:
                call.append(f"auto mask = torch::triu(torch::full({{x.size(0), x.size(0)}}, -1e9{self.real}), 1);")
                mask = ", mask"
            call += [f"x = {{n}}->forward(x{mask});", "x = x.transpose(0, 1);"]
            self.add(name="encoder", type="TransformerEncoderLayer",
                     args=f"torch::nn::TransformerEncoderLayerOptions({width}, 2).dim_feedforward({2 * width}).dropout(0.1)",
                     call="\n".join(call))
        elif form == "multihead" and not causal:
            self.add(name="attn", type="MultiheadAttention", args=f"torch::nn::MultiheadAttentionOptions({width}, 2)",
                     call="auto t = x.transpose(0, 1);\nt = std::get<0>({n}->forward(t, t, t));\nx = x + t.transpose(0, 1);")
        else:
            self.count += 1
            q, k, v = (f"{part}{self.count}" for part in ("query", "key", "value"))
            for name in (q, k):
                self.layers.append(Layer(name, "Linear", f"torch::nn::LinearOptions({width}, {width}).bias(false)", ""))
            if form == "scaled_dot_product":
                causal_text = f", {{}}, 0.0, {'true' if causal else 'false'}"
                call = [f"auto attended = torch::scaled_dot_product_attention({q}->forward(x), {k}->forward(x), "
                        f"{v}->forward(x){causal_text});", "x = x + attended;"]
            else:
                call = [f"auto scores = torch::matmul({q}->forward(x), {k}->forward(x).transpose(-2, -1)) / std::sqrt({width}.0);"]
                if causal:
                    call += ["auto length = x.size(1);", f"auto seen = torch::tril(torch::ones({{length, length}}{self.real}));",
                             "scores = scores.masked_fill(seen == 0, -1e9);"]
                product = self.choices.pick("product", ["torch::matmul(torch::softmax(scores, -1), {v})",
                                                        "torch::bmm(torch::softmax(scores, -1), {v})"])
                call.append("x = x + " + product.replace("{v}", f"{v}->forward(x)") + ";")
            self.layers.append(Layer(v, "Linear", f"{width}, {width}", "\n".join(call)))
            if self.choices.flag("attention_norm"):
                self.module("ln", "LayerNorm", f"torch::nn::LayerNormOptions({{{width}}})", sequential=False)

    def sequence(self, features, steps, outputs):
        form = self.choices.pick("sequence", ["recurrent", "conv1d", "attention"], [4, 2, 2])
        if form == "recurrent":
            width = self.recurrent(features, self.choices.integer("hidden", 4, 8), False)
        elif form == "conv1d":
            width = self.choices.integer("filters", 3, 6)
            self.add(name="conv", type="Conv1d", args=f"torch::nn::Conv1dOptions({features}, {width}, 3).padding(1)",
                     call="x = {n}->forward(x.transpose(1, 2));")
            self.activation("conv")
            self.function("std::get<0>(x.max(2))" if self.choices.flag("max_over_time") else "x.mean(-1)")
        else:
            width = 2 * self.choices.integer("half_width", 2, 4)
            self.add(name="embed", type="Linear", args=f"{features}, {width}")
            if self.choices.flag("positions", 0.4):
                self.add(name="position", type="Embedding", args=f"{steps}, {width}",
                         call="x = x + {n}->forward(torch::arange(x.size(1)));")
            self.attention(width, False)
            self.function("x.mean(1)")
        self.module("out", "Linear", f"{width}, {outputs}")

    def tokens(self, words, steps):
        """Logits of the next word at each step: [batch, time, words]."""
        width = 2 * self.choices.integer("half_width", 2, 4)
        self.module("embedding", "Embedding", f"{words}, {width}", sequential=False)
        if self.choices.flag("transformer", 0.5):
            self.add(name="position", type="Embedding", args=f"{steps}, {width}",
                     call="x = x + {n}->forward(torch::arange(x.size(1), torch::kLong));")
            self.attention(width, True)
        else:
            width = self.recurrent(width, self.choices.integer("hidden", 4, 8), True)
        self.module("out", "Linear", f"{width}, {words}", sequential=False)

    def autoencoder(self, inputs):
        width = self.choices.integer("width", 5, 9)
        code = self.choices.integer("code", 2, 4)
        self.hidden("encoder", inputs, width)
        self.module("code", "Linear", f"{width}, {code}")
        self.hidden("decoder", code, width)
        self.module("out", "Linear", f"{width}, {inputs}")


def sequential_text(layers):
    return [f"{layer.sequential}," for layer in layers[:-1]] + [layers[-1].sequential]


def module_text(name, base, layers, choices, forward_end):
    """A struct or class with the layers as members."""
    style = choices.pick("members", ["initialiser_list", "constructor", "default_member"])
    keyword = choices.pick("keyword", ["struct", "class"])
    members = [layer for layer in layers if layer.name]
    lines = [f"{keyword} {name} : public torch::nn::{base} {{" if keyword == "class" or base != "Module"
             else f"struct {name} : torch::nn::Module {{"]
    if keyword == "class":
        lines.append("public:")
    made = {layer.name: f"register_module(\"{layer.name}\", torch::nn::{layer.type}({layer.args}))" for layer in members}
    if style == "initialiser_list":
        lines.append(f"{name}()")
        lines += [(": " if i == 0 else "  ") + f"{layer.name}({made[layer.name]})" + ("," if i + 1 < len(members) else " {}")
                  for i, layer in enumerate(members)]
    elif style == "constructor":
        lines.append(f"{name}() {{")
        lines += [f"{layer.name} = {made[layer.name]};" for layer in members]
        lines.append("}")
    lines.append("torch::Tensor forward(torch::Tensor x) {")
    lines += [layer.call for layer in layers if layer.call] + [f"return {forward_end};", "}"]
    for layer in members:
        value = {"initialiser_list": "", "constructor": "{nullptr}", "default_member": f"{{{made[layer.name]}}}"}[style]
        lines.append(f"torch::nn::{layer.type} {layer.name}{value};")
    lines += [layer.declared for layer in layers if layer.declared]
    lines.append("};")
    return lines


def make_model(choices, grammar, name="Net", variable=None, forward_end="x"):
    """The grammar's layers as a type and a variable."""
    layers = grammar.layers
    end_sequential = {"x": None, "torch::log_softmax(x, 1)": "torch::nn::LogSoftmax(1)"}.get(forward_end, "")
    forms = ["shared_ptr", "holder", "value"]
    if all(layer.sequential for layer in layers) and end_sequential != "":
        forms += ["sequential"]
    form = choices.pick("model_form", forms)
    variable = variable or choices.pick("model_name", ["model", "net", "network"])
    common = {"needs_two_rows": grammar.needs_two_rows, "has_key_bias": grammar.has_key_bias}
    if form == "sequential":
        elements = list(layers) + ([Layer(sequential=end_sequential)] if end_sequential else [])
        args = "\n".join(sequential_text(elements))
        var = Var(variable, "torch::nn::Sequential", args, pointer=True,
                  parameter=choices.pick("sequential_parameter", [f"torch::nn::Sequential& {variable}", f"torch::nn::Sequential {variable}"]),
                  deferred=f"torch::nn::Sequential {variable}{{nullptr}};",
                  assignment=f"{variable} = torch::nn::Sequential({args});")
        return Model([], var, is_sequential=True, **common)
    if form == "holder":
        types = module_text(f"{name}Impl", "Module", layers, choices, forward_end) + [f"TORCH_MODULE({name});"]
        var = Var(variable, name, "", pointer=True,
                  parameter=choices.pick("holder_parameter", [f"{name}& {variable}", f"{name} {variable}"]),
                  local=choices.pick("holder_local", [f"{name} {variable};", f"auto {variable} = {name}();"]),
                  deferred=f"{name} {variable}{{nullptr}};", assignment=f"{variable} = {name}();")
        return Model(types, var, callable=True, **common)
    types = module_text(name, "Module", layers, choices, forward_end)
    if form == "shared_ptr":
        parameter, pointer, passed = choices.pick("pointer_parameter", [
            (f"std::shared_ptr<{name}> {variable}", True, variable),
            (f"const std::shared_ptr<{name}>& {variable}", True, variable),
            (f"{name}& {variable}", False, f"*{variable}")])
        var = Var(variable, f"std::shared_ptr<{name}>", f"std::make_shared<{name}>()", pointer=True, parameter=parameter,
                  parameter_is_pointer=pointer, passed=passed, local=f"auto {variable} = std::make_shared<{name}>();",
                  deferred=f"std::shared_ptr<{name}> {variable};", assignment=f"{variable} = std::make_shared<{name}>();")
        return Model(types, var, **common)
    var = Var(variable, name, "", local=f"{name} {variable};", parameter=f"{name}& {variable}",
              deferred=f"{name} {variable};", assignment="")
    return Model(types, var, **common)

"""A program of a seed."""

from choices import Choices
from outputs import Outputs
from specials import make_special
from structure import Composer, SpecialComposer
from text import Var
from training import Training


def make_device(choices):
    form = choices.pick("device", ["none", "ternary", "cpu", "if"], [4, 2, 2, 1])
    if form == "none":
        return None
    local = {"ternary": "torch::Device device(torch::cuda::is_available() ? torch::kCUDA : torch::kCPU);",
             "cpu": "torch::Device device(torch::kCPU);",
             "if": "torch::Device device = torch::kCPU;\nif (torch::cuda::is_available()) {\ndevice = torch::kCUDA;\n}"}[form]
    return Var("device", "torch::Device", "torch::kCPU", parameter="torch::Device device", local=local, deferred="torch::Device device(torch::kCPU);")


def make_program(seed, plain=()):
    """The program of the seed, and the choices that made it."""
    choices = Choices(seed, plain)
    real = choices.pick("precision", ["", ", torch::kDouble"], [3, 2])
    outputs = Outputs(choices)
    if choices.flag("special", 0.35):
        special = make_special(choices.within("special"), outputs, real)
        return SpecialComposer(choices, special, outputs).compose(), choices
    device = make_device(choices)
    training = Training(choices, outputs, real, device)
    composer = Composer(choices, training, outputs, device)
    return composer.compose(), choices

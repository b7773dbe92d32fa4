"""startup.cpp in Python, with Accelerate."""

import time

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(784, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
loader = DataLoader(TensorDataset(torch.randn(256, 784)), batch_size=64)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for (data,) in loader:
    with accelerator.accumulate(model):
        loss = torch.nn.functional.cross_entropy(model(data), torch.arange(data.size(0)) % 10)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
    break
if accelerator.is_main_process:
    print(f"{time.time():.6f}")

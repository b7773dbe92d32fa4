//===- Device.cpp - Each process works on its own device ------------------===//
//
// The choice of the device is the accelerator's; what the program does besides
// choosing it stays.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

void accel::migrate::applyDevice(RuleContext &Context) {
  for (const DeviceFact &Device : Context.Program.Devices) {
    if (Device.Kind == DeviceFact::Selection) {
      Context.remove(Device.Range,
                     "the accelerator has chosen the device already");
      continue;
    }
    const std::string Accelerator =
        Context.accelerator(Device.In, Device.Range);
    const auto Replace = [&](llvm::StringRef Template, const char *Why) {
      Context.replace(Device.Range, Template, {{"accelerator", Accelerator}},
                      Why);
    };
    switch (Device.Kind) {
    case DeviceFact::Initialiser:
      Replace("device-initialiser", "each process has a device of its own");
      break;
    case DeviceFact::TypeInitialiser:
      Replace("device-type-initialiser",
              "the kind of device is the accelerator's choice");
      break;
    case DeviceFact::Condition:
      Replace("device-condition",
              "whether a GPU is used is the accelerator's choice");
      break;
    case DeviceFact::Negation:
      Replace("device-negation",
              "whether a GPU is used is the accelerator's choice");
      break;
    case DeviceFact::Literal:
      Replace("device-literal", "each process has a device of its own");
      break;
    case DeviceFact::TypeLiteral:
      Replace("device-type", "the kind of device is the accelerator's choice");
      break;
    case DeviceFact::Synchronize:
      Replace("device-synchronize", "the process waits for its own device");
      break;
    case DeviceFact::CudaCall:
      Replace("device-call", "each process has a device of its own");
      break;
    case DeviceFact::CudaQuestion:
      Context.replace(Device.Range, "device-question", {{"device", Device.Name}},
                      "the process's device has a number, torch::kCUDA none");
      break;
    case DeviceFact::Global:
      Context.insertLine(Context.Program.Functions[Device.In].Top,
                         "device-global",
                         {{"variable", Device.Name},
                          {"accelerator", Accelerator}},
                         "the variable is made before the accelerator; this is "
                         "the process's device",
                         /*Priority=*/-90);
      break;
    case DeviceFact::Selection:
      break;
    }
  }
}

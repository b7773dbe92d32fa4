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
    const std::string Accelerator = Context.accelerator(Device.In);
    switch (Device.Kind) {
    case DeviceFact::Initialiser:
      Context.replace(Device.Range, "device-initialiser",
                      {{"accelerator", Accelerator}},
                      "each process has a device of its own");
      break;
    case DeviceFact::TypeInitialiser:
      Context.replace(Device.Range, "device-type-initialiser",
                      {{"accelerator", Accelerator}},
                      "the kind of device is the accelerator's choice");
      break;
    case DeviceFact::Condition:
      Context.replace(Device.Range, "device-condition",
                      {{"accelerator", Accelerator}},
                      "whether a GPU is used is the accelerator's choice");
      break;
    case DeviceFact::Literal:
      Context.replace(Device.Range, "device-literal",
                      {{"accelerator", Accelerator}},
                      "each process has a device of its own");
      break;
    case DeviceFact::TypeLiteral:
      Context.replace(Device.Range, "device-type",
                      {{"accelerator", Accelerator}},
                      "the kind of device is the accelerator's choice");
      break;
    case DeviceFact::Synchronize:
      Context.replace(Device.Range, "device-synchronize",
                      {{"accelerator", Accelerator}},
                      "the process waits for its own device");
      break;
    case DeviceFact::CudaCall:
      Context.replace(Device.Range, "device-call",
                      {{"accelerator", Accelerator}},
                      "each process has a device of its own");
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

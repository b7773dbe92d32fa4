//===- AllRules.h - The rules' functions ----------------------------------===//

#ifndef ACCEL_MIGRATE_LIB_RULES_ALLRULES_H
#define ACCEL_MIGRATE_LIB_RULES_ALLRULES_H

#include "accel/migrate/Rule.h"

namespace accel::migrate {

#define ACCEL_RULE(Name, Function) void Function(RuleContext &Context);
#include "accel/migrate/Rules.def"

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_RULES_ALLRULES_H

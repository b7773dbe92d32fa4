// What a program that trains includes: nothing of accel's, so that a program
// that forgets one of accel's headers does not compile by chance.
#include <torch/torch.h>

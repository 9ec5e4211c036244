// std::min, std::max and std::clamp. <algorithm> also has the algorithms on ranges and on several threads,
// which nvcc would read five times for each kernel file. libstdc++ has a header without these.
#pragma once

#if __has_include(<bits/stl_algo.h>)
#include <bits/stl_algo.h>
#else
#include <algorithm>
#endif

// Converts names from Python to the enumerations of the library.
#pragma once

#include <stdexcept>
#include <string>

#include "core/names.h"

namespace fastgemm {

template <class Enum>
Enum parse(const std::string& name, int count, const char* what) {
  for (int i = 0; i < count; ++i)
    if (to_string(static_cast<Enum>(i)) == name) return static_cast<Enum>(i);
  throw std::invalid_argument(std::string("unknown ") + what + " '" + name + "'");
}

}  // namespace fastgemm

#include "simt/resources.h"

namespace fastgemm::simt {

const char* resources() {
  return
#include "simt/cuda_resources.def"
      ;
}

}  // namespace fastgemm::simt

/* A libcuda.so.1 that answers like the drivers of other machines. FAKE_VERSION is its CUDA version (13000 for
 * 13.0), FAKE_INIT the result of cuInit (100: no GPU). tools/check_cuda_messages.py loads it.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int from_environment(const char* name, int otherwise) {
  const char* text = getenv(name);
  return text ? atoi(text) : otherwise;
}

int cuInit(unsigned flags) {
  (void)flags;
  return from_environment("FAKE_INIT", 0);
}

int cuDriverGetVersion(int* version) {
  *version = from_environment("FAKE_VERSION", 13000);
  return 0;
}

int cuDeviceGetCount(int* count) {
  *count = 0;
  return 0;
}

static int no_device(void) { return 100; }

/* The CUDA runtime finds every function of a driver through this one. */
int cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags, int* found) {
  (void)version, (void)flags;
  *function = (void*)no_device;
  if (!strcmp(name, "cuInit")) *function = (void*)cuInit;
  if (!strcmp(name, "cuDriverGetVersion")) *function = (void*)cuDriverGetVersion;
  if (!strcmp(name, "cuDeviceGetCount")) *function = (void*)cuDeviceGetCount;
  if (!strcmp(name, "cuGetProcAddress")) *function = (void*)cuGetProcAddress_v2;
  if (found) *found = 0;
  return 0;
}

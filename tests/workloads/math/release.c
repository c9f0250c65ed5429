// One release of cuBLAS: its handles are of no use to another.
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int cublasCreate_v2(void** handle) {
  int* const release = malloc(sizeof *release);
  *release = RELEASE;
  *handle = release;
  return 0;
}
EXPORT int cublasDestroy_v2(void* handle) { return free(handle), 0; }
EXPORT int cublasSgemm_v2(void* handle, int ta, int tb, int m, int n, int k, const void* alpha, const void* a, int lda, const void* b, int ldb, const void* beta, void* c, int ldc) {
  (void)ta, (void)tb, (void)m, (void)n, (void)k, (void)alpha, (void)a, (void)lda, (void)b, (void)ldb, (void)beta, (void)c, (void)ldc;
  return *(int*)handle == RELEASE ? 0 : *(int*)handle;
}

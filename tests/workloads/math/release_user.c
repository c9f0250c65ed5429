// A plugin that is linked with one release of cuBLAS.
int cublasCreate_v2(void**), cublasDestroy_v2(void*);
int cublasSgemm_v2(void*, int, int, int, int, int, const void*, const void*, int, const void*, int, const void*, void*, int);

__attribute__((visibility("default"))) int use(void) {
  void* handle;
  cublasCreate_v2(&handle);
  const int status = cublasSgemm_v2(handle, 0, 0, 1, 1, 1, 0, 0, 1, 0, 1, 0, 0, 1);
  cublasDestroy_v2(handle);
  return status;
}

// The CUDA driver API as far as IREE's CUDA driver uses it (runtime/src/iree/hal/drivers/cuda in IREE's sources), on
// emulated devices. IREE looks up `cuGetProcAddress` and asks it for everything else, under names without `_v2`; what
// qmlir itself calls (core/cuda.py) has its own name too.
#include "device.h"

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_DEVICE = 101, INVALID_CONTEXT = 201, NOT_FOUND = 500, NOT_SUPPORTED = 801 };
enum { MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97, MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 };
enum { POINTER_MEMPOOL_HANDLE = 17, POOL_RELEASE_THRESHOLD = 4 };
typedef int Result;
typedef uint64_t Pointer;

static Result cuGetErrorName(Result error, const char** name) {
  *name = error == SUCCESS         ? "CUDA_SUCCESS"
          : error == INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE"
          : error == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
          : error == NOT_FOUND     ? "CUDA_ERROR_NOT_FOUND"
          : error == NOT_SUPPORTED ? "CUDA_ERROR_NOT_SUPPORTED"
                                   : "CUDA_ERROR_UNKNOWN";
  return SUCCESS;
}
static Result cuGetErrorString(Result error, const char** text) { return cuGetErrorName(error, text); }
static Result cuDriverGetVersion(int* version) { return *version = 12080, SUCCESS; }
static Result cuInit(unsigned flags) { return SUCCESS; }

// ---- devices and contexts: a context is its device

static __thread void* current;
API Result cuDeviceGetCount(int* count) { return *count = device_count, SUCCESS; }
static Result cuDeviceGet(int* device, int number) {
  if (number < 0 || number >= device_count) return INVALID_DEVICE;
  return *device = number, SUCCESS;
}
static Result cuDeviceGetName(char* name, int size, int device) {
  return snprintf(name, size, "%s", devices[device].name), SUCCESS;
}
static Result cuDeviceGetAttribute(int* value, int id, int device) {
  return *value = attribute_of(device, id), SUCCESS;
}
static Result cuDeviceGetUuid(unsigned char* uuid, int device) { return uuid_of(device, uuid), SUCCESS; }
static Result cuDevicePrimaryCtxRetain(void** context, int device) { return *context = &devices[device], SUCCESS; }
static Result cuDevicePrimaryCtxRelease(int device) { return SUCCESS; }
static Result cuCtxCreate(void** context, unsigned flags, int device) { return *context = &devices[device], SUCCESS; }
static Result cuCtxDestroy(void* context) { return SUCCESS; }
API Result cuCtxSetCurrent(void* context) { return current = context, SUCCESS; }
API Result cuCtxGetCurrent(void** context) { return *context = current, SUCCESS; }
API Result cuCtxGetDevice(int* device) {
  return current ? *device = (int)((Device*)current - devices), SUCCESS : INVALID_CONTEXT;
}
static Result cuCtxPushCurrent(void* context) { return current = context, SUCCESS; }
static Result cuCtxPopCurrent(void** context) { return context ? *context = current : 0, SUCCESS; }

// ---- streams and events: what was submitted is done

static char something;
static Result cuStreamCreate(void** stream, unsigned flags) { return *stream = &something, SUCCESS; }
static Result cuStreamDestroy(void* stream) { return SUCCESS; }
static Result cuStreamSynchronize(void* stream) { return SUCCESS; }
static Result cuStreamWaitEvent(void* stream, void* event, unsigned flags) { return SUCCESS; }
static Result cuEventCreate(void** event, unsigned flags) { return *event = &something, SUCCESS; }
static Result cuEventDestroy(void* event) { return SUCCESS; }
static Result cuEventElapsedTime(float* ms, void* start, void* end) { return *ms = 0, SUCCESS; }
static Result cuEventQuery(void* event) { return SUCCESS; }
static Result cuEventRecord(void* event, void* stream) { return SUCCESS; }
static Result cuEventSynchronize(void* event) { return SUCCESS; }
static Result cuLaunchHostFunc(void* stream, void (*function)(void*), void* data) { return function(data), SUCCESS; }

// ---- memory

static Result allocated(void** pointer, size_t size, int visible) {
  if (!size) return INVALID_VALUE;
  return (*pointer = device_allocate(size, visible)) ? SUCCESS : OUT_OF_MEMORY;
}
static Result cuMemAlloc(void** pointer, size_t size) { return allocated(pointer, size, 0); }
static Result cuMemAllocManaged(void** pointer, size_t size, unsigned flags) { return allocated(pointer, size, 1); }
static Result cuMemHostAlloc(void** pointer, size_t size, unsigned flags) { return allocated(pointer, size, 1); }
static Result cuMemFree(void* pointer) { return device_free(pointer), SUCCESS; }
static Result cuMemFreeHost(void* pointer) { return device_free(pointer), SUCCESS; }
static Result cuMemHostRegister(void* pointer, size_t size, unsigned flags) {
  return device_register(pointer, size), SUCCESS;
}
static Result cuMemHostUnregister(void* pointer) { return device_free(pointer), SUCCESS; }
static Result cuMemHostGetDevicePointer(void** device, void* host, unsigned flags) { return *device = host, SUCCESS; }
static Result cuMemPrefetchAsync(Pointer pointer, size_t size, int device, void* stream) { return SUCCESS; }
// A pool is its release threshold, which changes nothing here.
static Result cuMemPoolCreate(void** pool, const void* properties) {
  return (*pool = calloc(1, sizeof(uint64_t))) ? SUCCESS : OUT_OF_MEMORY;
}
static Result cuMemPoolDestroy(void* pool) { return free(pool), SUCCESS; }
static Result cuMemPoolSetAccess(void* pool, const void* access, size_t count) { return SUCCESS; }
API Result cuMemPoolGetAttribute(void* pool, int id, void* value) {
  return *(uint64_t*)value = id == POOL_RELEASE_THRESHOLD ? *(uint64_t*)pool : 0, SUCCESS;
}
API Result cuMemPoolSetAttribute(void* pool, int id, void* value) {
  if (id == POOL_RELEASE_THRESHOLD) *(uint64_t*)pool = *(uint64_t*)value;
  return SUCCESS;
}
API Result cuPointerGetAttribute(void* data, int id, Pointer pointer) {
  if (id != POINTER_MEMPOOL_HANDLE) return NOT_SUPPORTED;
  pthread_mutex_lock(&lock);
  Allocation* a = allocation_of((void*)pointer);
  if (a) *(void**)data = a->pool;
  pthread_mutex_unlock(&lock);
  return a ? SUCCESS : INVALID_VALUE;
}
static Result cuMemPoolTrimTo(void* pool, size_t size) { return SUCCESS; }
// IREE asks pools for the 0 bytes of an empty tensor. What a driver says to that is not documented.
static Result cuMemAllocFromPoolAsync(void** pointer, size_t size, void* pool, void* stream) {
  Result made = allocated(pointer, size ? size : 1, 0);
  if (made == SUCCESS) {
    pthread_mutex_lock(&lock);
    allocation_of(*pointer)->pool = pool;
    pthread_mutex_unlock(&lock);
  }
  return made;
}
static Result cuMemFreeAsync(void* pointer, void* stream) { return device_free(pointer), SUCCESS; }
static Result cuMemcpyAsync(void* target, const void* source, size_t size, void* stream) {
  return submit(new_copy(target, source, size)), SUCCESS;
}
static Result cuMemcpyHtoDAsync(void* target, const void* source, size_t size, void* stream) {
  return submit(new_copy(target, source, size)), SUCCESS;
}
static Result cuMemsetD8Async(void* target, unsigned char value, size_t count, void* stream) {
  return submit(new_fill(target, value, 1, count)), SUCCESS;
}
static Result cuMemsetD16Async(void* target, unsigned short value, size_t count, void* stream) {
  return submit(new_fill(target, value, 2, 2 * count)), SUCCESS;
}
static Result cuMemsetD32Async(void* target, unsigned value, size_t count, void* stream) {
  return submit(new_fill(target, value, 4, 4 * count)), SUCCESS;
}

// ---- kernels

static Result cuModuleLoadDataEx(void** module, const void* image, unsigned n, void* options, void** values) {
  return *module = new_module(image, strlen(image)), SUCCESS;
}
static Result cuModuleUnload(void* module) { return drop_module(module), SUCCESS; }
static Result cuModuleGetFunction(void** function, void* module, const char* name) {
  return (*function = find_kernel(module, name)) ? SUCCESS : NOT_FOUND;
}
static Result cuModuleGetGlobal(void** pointer, size_t* size, void* module, const char* name) { return NOT_FOUND; }
static Result cuFuncSetAttribute(void* function, int id, int value) {
  int most = attribute_of(active_device, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  return id == MAX_DYNAMIC_SHARED_SIZE_BYTES && value > most ? INVALID_VALUE : SUCCESS;
}
static Result cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                             unsigned bz, unsigned shared, void* stream, void** parameters, void** extra) {
  uint32_t grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
  return submit(new_launch(function, grid, block, shared, parameters)), SUCCESS;
}

// ---- graphs

typedef struct KernelNode {
  void* function;
  unsigned grid[3], block[3], shared;
  void **parameters, **extra;
} KernelNode;
typedef struct FillNode {
  void* target;
  size_t pitch;
  unsigned value, width;
  size_t count, height;
} FillNode;
typedef struct CopySide {
  size_t x, y, z, level;
  int kind;
  char *host, *device;
  void *array, *reserved;
  size_t pitch, height;
} CopySide;
typedef struct CopyNode {
  CopySide source, target;
  size_t width, height, depth;
} CopyNode;
static char* side(const CopySide* s) { return (s->kind == 1 ? s->host : s->device) + s->x; }

static Result cuGraphCreate(void** graph, unsigned flags) { return *graph = new_graph(), SUCCESS; }
static Result cuGraphDestroy(void* graph) { return drop_graph(graph), SUCCESS; }
static Result cuGraphInstantiate(void** exec, void* graph, void** node, char* log, size_t size) {
  return ((Graph*)graph)->uses++, *exec = graph, SUCCESS;
}
static Result cuGraphExecDestroy(void* exec) { return drop_graph(exec), SUCCESS; }
static Result cuGraphGetNodes(void* graph, void** nodes, size_t* count) { return *count = 0, SUCCESS; }
static Result cuGraphLaunch(void* exec, void* stream) { return launch_graph(exec), SUCCESS; }
static Result cuGraphAddEmptyNode(void** node, void* graph, void* const* after, size_t count) {
  return *node = &something, SUCCESS;
}
static Result cuGraphAddEventRecordNode(void** node, void* graph, void* const* after, size_t count, void* event) {
  return *node = &something, SUCCESS;
}
static Result cuGraphAddMemcpyNode(void** node, void* graph, void* const* after, size_t count, const CopyNode* p,
                                   void* context) {
  if (p->height > 1 || p->depth > 1) return NOT_SUPPORTED;
  add_to_graph(graph, new_copy(side(&p->target), side(&p->source), p->width));
  return *node = &something, SUCCESS;
}
static Result cuGraphAddMemsetNode(void** node, void* graph, void* const* after, size_t count, const FillNode* p,
                                   void* context) {
  if (p->height > 1) return NOT_SUPPORTED;
  add_to_graph(graph, new_fill(p->target, p->value, p->width, p->width * p->count));
  return *node = &something, SUCCESS;
}
static Result cuGraphAddKernelNode(void** node, void* graph, void* const* after, size_t count, const KernelNode* p) {
  add_to_graph(graph, new_launch(p->function, p->grid, p->block, p->shared, p->parameters));
  return *node = &something, SUCCESS;
}

API Result cuGetProcAddress(const char* name, void** function, int version, uint64_t flags);

#define F(name) {#name, (void*)name}
static const struct {
  const char* name;
  void* function;
} FUNCTIONS[] = {
    F(cuGetErrorName), F(cuGetErrorString), F(cuDriverGetVersion), F(cuInit), F(cuDeviceGetCount), F(cuDeviceGet),
    F(cuDeviceGetName), F(cuDeviceGetAttribute), F(cuDeviceGetUuid), F(cuDevicePrimaryCtxRetain),
    F(cuDevicePrimaryCtxRelease), F(cuCtxCreate), F(cuCtxDestroy), F(cuCtxSetCurrent), F(cuCtxPushCurrent),
    F(cuCtxPopCurrent), F(cuStreamCreate), F(cuStreamDestroy), F(cuStreamSynchronize), F(cuStreamWaitEvent),
    F(cuEventCreate), F(cuEventDestroy), F(cuEventElapsedTime), F(cuEventQuery), F(cuEventRecord),
    F(cuEventSynchronize), F(cuLaunchHostFunc), F(cuMemAlloc), F(cuMemAllocManaged), F(cuMemHostAlloc), F(cuMemFree),
    F(cuMemFreeHost), F(cuMemHostRegister), F(cuMemHostUnregister), F(cuMemHostGetDevicePointer),
    F(cuMemPrefetchAsync), F(cuMemPoolCreate), F(cuMemPoolDestroy), F(cuMemPoolSetAccess), F(cuMemPoolGetAttribute),
    F(cuMemPoolSetAttribute), F(cuMemPoolTrimTo), F(cuMemAllocFromPoolAsync), F(cuMemFreeAsync), F(cuMemcpyAsync),
    F(cuMemcpyHtoDAsync), F(cuMemsetD8Async), F(cuMemsetD16Async), F(cuMemsetD32Async), F(cuModuleLoadDataEx),
    F(cuModuleUnload), F(cuModuleGetFunction), F(cuModuleGetGlobal), F(cuFuncSetAttribute), F(cuLaunchKernel),
    F(cuGraphCreate), F(cuGraphDestroy), F(cuGraphInstantiate), F(cuGraphExecDestroy), F(cuGraphGetNodes),
    F(cuGraphLaunch), F(cuGraphAddEmptyNode), F(cuGraphAddEventRecordNode), F(cuGraphAddMemcpyNode),
    F(cuGraphAddMemsetNode), F(cuGraphAddKernelNode), F(cuGetProcAddress),
};

API Result cuGetProcAddress(const char* name, void** function, int version, uint64_t flags) {
  for (size_t i = 0; i < sizeof FUNCTIONS / sizeof *FUNCTIONS; i++)
    if (!strcmp(FUNCTIONS[i].name, name)) return *function = FUNCTIONS[i].function, SUCCESS;
  return NOT_FOUND;
}

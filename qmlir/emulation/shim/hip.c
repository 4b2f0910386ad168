// HIP's runtime API as far as IREE's HIP driver uses it (runtime/src/iree/hal/drivers/hip in IREE's sources), on
// emulated devices. IREE looks up each function by its name in `libamdhip64.so`.
#include "device.h"

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_DEVICE = 101, INVALID_IMAGE = 200, NOT_FOUND = 500,
       NOT_SUPPORTED = 801 };
typedef int Result;

API const char* hipGetErrorName(Result error) {
  return error == SUCCESS         ? "hipSuccess"
         : error == INVALID_VALUE ? "hipErrorInvalidValue"
         : error == OUT_OF_MEMORY ? "hipErrorOutOfMemory"
         : error == INVALID_IMAGE ? "hipErrorInvalidImage"
         : error == NOT_FOUND     ? "hipErrorNotFound"
         : error == NOT_SUPPORTED ? "hipErrorNotSupported"
                                  : "hipErrorUnknown";
}
API const char* hipGetErrorString(Result error) { return hipGetErrorName(error); }
API Result hipGetLastError(void) { return SUCCESS; }
API Result hipInit(unsigned flags) { return SUCCESS; }

// ---- devices and contexts: a context is its device

static __thread void* current;
API Result hipGetDeviceCount(int* count) { return *count = device_count, SUCCESS; }
API Result hipDeviceGet(int* device, int number) {
  if (number < 0 || number >= device_count) return INVALID_DEVICE;
  return *device = number, SUCCESS;
}
API Result hipDeviceGetName(char* name, int size, int device) {
  return snprintf(name, size, "%s", devices[device].name), SUCCESS;
}
API Result hipDeviceGetAttribute(int* value, int id, int device) { return *value = attribute_of(device, id), SUCCESS; }
API Result hipDeviceGetUuid(unsigned char* uuid, int device) { return uuid_of(device, uuid), SUCCESS; }
API Result hipDeviceCanAccessPeer(int* can, int device, int peer) { return *can = 0, SUCCESS; }
API Result hipDeviceEnablePeerAccess(int peer, unsigned flags) { return SUCCESS; }
API Result hipDevicePrimaryCtxRetain(void** context, int device) { return *context = &devices[device], SUCCESS; }
API Result hipDevicePrimaryCtxRelease(int device) { return SUCCESS; }
API Result hipSetDevice(unsigned device) { return SUCCESS; }
API Result hipCtxSetCurrent(void* context) { return current = context, SUCCESS; }
API Result hipCtxGetCurrent(void** context) { return *context = current, SUCCESS; }
API Result hipCtxPushCurrent(void* context) { return current = context, SUCCESS; }
API Result hipCtxPopCurrent(void** context) { return context ? *context = current : 0, SUCCESS; }

// ---- streams and events: what was submitted is done

static char something;
API Result hipStreamCreateWithFlags(void** stream, unsigned flags) { return *stream = &something, SUCCESS; }
API Result hipStreamDestroy(void* stream) { return SUCCESS; }
API Result hipStreamSynchronize(void* stream) { return SUCCESS; }
API Result hipStreamWaitEvent(void* stream, void* event, unsigned flags) { return SUCCESS; }
API Result hipEventCreate(void** event) { return *event = &something, SUCCESS; }
API Result hipEventCreateWithFlags(void** event, unsigned flags) { return *event = &something, SUCCESS; }
API Result hipEventDestroy(void* event) { return SUCCESS; }
API Result hipEventElapsedTime(float* ms, void* start, void* end) { return *ms = 0, SUCCESS; }
API Result hipEventQuery(void* event) { return SUCCESS; }
API Result hipEventRecord(void* event, void* stream) { return SUCCESS; }
API Result hipEventSynchronize(void* event) { return SUCCESS; }
API Result hipLaunchHostFunc(void* stream, void (*function)(void*), void* data) { return function(data), SUCCESS; }

// ---- memory

static Result allocated(void** pointer, size_t size, int visible) {
  return (*pointer = device_allocate(size ? size : 1, visible)) ? SUCCESS : OUT_OF_MEMORY;
}
API Result hipMalloc(void** pointer, size_t size) { return allocated(pointer, size, 0); }
API Result hipMallocAsync(void** pointer, size_t size, void* stream) { return allocated(pointer, size, 0); }
API Result hipMallocFromPoolAsync(void** pointer, size_t size, void* pool, void* stream) {
  return allocated(pointer, size, 0);
}
API Result hipMallocManaged(void** pointer, size_t size, unsigned flags) { return allocated(pointer, size, 1); }
API Result hipHostMalloc(void** pointer, size_t size, unsigned flags) { return allocated(pointer, size, 1); }
API Result hipFree(void* pointer) { return device_free(pointer), SUCCESS; }
API Result hipFreeAsync(void* pointer, void* stream) { return device_free(pointer), SUCCESS; }
API Result hipHostFree(void* pointer) { return device_free(pointer), SUCCESS; }
API Result hipHostRegister(void* pointer, size_t size, unsigned flags) {
  return device_register(pointer, size), SUCCESS;
}
API Result hipHostUnregister(void* pointer) { return device_free(pointer), SUCCESS; }
API Result hipHostGetDevicePointer(void** device, void* host, unsigned flags) { return *device = host, SUCCESS; }
API Result hipMemPrefetchAsync(const void* pointer, size_t size, int device, void* stream) { return SUCCESS; }
API Result hipMemPoolCreate(void** pool, const void* properties) { return *pool = &something, SUCCESS; }
API Result hipMemPoolDestroy(void* pool) { return SUCCESS; }
API Result hipMemPoolGetAttribute(void* pool, int id, void* value) { return *(uint64_t*)value = 0, SUCCESS; }
API Result hipMemPoolSetAttribute(void* pool, int id, void* value) { return SUCCESS; }
API Result hipMemPoolTrimTo(void* pool, size_t size) { return SUCCESS; }
API Result hipMemcpy(void* target, const void* source, size_t size, int kind) {
  return submit(new_copy(target, source, size)), SUCCESS;
}
API Result hipMemcpyAsync(void* target, const void* source, size_t size, int kind, void* stream) {
  return submit(new_copy(target, source, size)), SUCCESS;
}
API Result hipMemcpyHtoDAsync(void* target, void* source, size_t size, void* stream) {
  return submit(new_copy(target, source, size)), SUCCESS;
}
API Result hipMemset(void* target, int value, size_t size) { return submit(new_fill(target, value, 1, size)), SUCCESS; }
API Result hipMemsetAsync(void* target, int value, size_t size, void* stream) {
  return submit(new_fill(target, value, 1, size)), SUCCESS;
}
API Result hipMemsetD8Async(void* target, unsigned char value, size_t count, void* stream) {
  return submit(new_fill(target, value, 1, count)), SUCCESS;
}
API Result hipMemsetD16Async(void* target, unsigned short value, size_t count, void* stream) {
  return submit(new_fill(target, value, 2, 2 * count)), SUCCESS;
}
API Result hipMemsetD32Async(void* target, int value, size_t count, void* stream) {
  return submit(new_fill(target, (uint32_t)value, 4, 4 * count)), SUCCESS;
}

// ---- kernels

// Bytes of an ELF file of 64 bits: its headers and sections say where it ends. 0 for anything else.
static uint64_t elf_size(const unsigned char* e) {
  if (memcmp(e, "\177ELF\2", 5)) return 0;
  uint64_t programs, sections, end = 64;
  uint16_t program_size, program_count, section_size, section_count;
  memcpy(&programs, e + 32, 8), memcpy(&sections, e + 40, 8);
  memcpy(&program_size, e + 54, 2), memcpy(&program_count, e + 56, 2);
  memcpy(&section_size, e + 58, 2), memcpy(&section_count, e + 60, 2);
  for (int i = 0; i < program_count; i++) {
    uint64_t offset, size;
    memcpy(&offset, e + programs + i * program_size + 8, 8), memcpy(&size, e + programs + i * program_size + 32, 8);
    if (offset + size > end) end = offset + size;
  }
  for (int i = 0; i < section_count; i++) {
    uint32_t kind;
    uint64_t offset, size;
    memcpy(&kind, e + sections + i * section_size + 4, 4);
    memcpy(&offset, e + sections + i * section_size + 24, 8), memcpy(&size, e + sections + i * section_size + 32, 8);
    if (kind != 8 && offset + size > end) end = offset + size;  // SHT_NOBITS has none in the file
  }
  if (sections + section_count * section_size > end) end = sections + section_count * section_size;
  return end;
}
API Result hipModuleLoadData(void** module, const void* image) {
  uint64_t size = elf_size(image);
  if (!size) return INVALID_IMAGE;
  return *module = new_module(image, size), SUCCESS;
}
API Result hipModuleLoadDataEx(void** module, const void* image, unsigned n, void* options, void** values) {
  return hipModuleLoadData(module, image);
}
API Result hipModuleUnload(void* module) { return drop_module(module), SUCCESS; }
API Result hipModuleGetFunction(void** function, void* module, const char* name) {
  return (*function = find_kernel(module, name)) ? SUCCESS : NOT_FOUND;
}
API Result hipModuleGetGlobal(void** pointer, size_t* size, void* module, const char* name) { return NOT_FOUND; }
// The executor checks a kernel's own shared memory against the device's at its launch.
API Result hipFuncGetAttribute(int* value, int id, const void* function) { return *value = 0, SUCCESS; }
API Result hipFuncSetAttribute(const void* function, int id, int value) { return SUCCESS; }
API Result hipModuleLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                 unsigned bz, unsigned shared, void* stream, void** parameters, void** extra) {
  uint32_t grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
  return submit(new_launch(function, grid, block, shared, parameters)), SUCCESS;
}
typedef struct Dimensions {
  unsigned x, y, z;
} Dimensions;
API Result hipLaunchKernel(const void* function, Dimensions grid, Dimensions block, void** parameters, size_t shared,
                           void* stream) {
  return NOT_SUPPORTED;  // of functions that are linked into the process
}

// ---- graphs

typedef struct KernelNode {
  Dimensions block;
  void** extra;
  void* function;
  Dimensions grid;
  void** parameters;
  unsigned shared;
} KernelNode;
typedef struct FillNode {
  void* target;
  unsigned width;
  size_t height, pitch;
  unsigned value;
  size_t count;
} FillNode;
typedef struct CopySide {
  size_t x, y, z, level;
  int kind;
  char *host, *device;
  void* array;
  size_t pitch, height;
} CopySide;
typedef struct CopyNode {
  CopySide source, target;
  size_t width, height, depth;
} CopyNode;
static char* side(const CopySide* s) { return (s->host ? s->host : s->device) + s->x; }

API Result hipGraphCreate(void** graph, unsigned flags) { return *graph = new_graph(), SUCCESS; }
API Result hipGraphDestroy(void* graph) { return drop_graph(graph), SUCCESS; }
API Result hipGraphInstantiate(void** exec, void* graph, void** node, char* log, size_t size) {
  return ((Graph*)graph)->uses++, *exec = graph, SUCCESS;
}
API Result hipGraphExecDestroy(void* exec) { return drop_graph(exec), SUCCESS; }
API Result hipGraphLaunch(void* exec, void* stream) { return launch_graph(exec), SUCCESS; }
API Result hipGraphAddEmptyNode(void** node, void* graph, void* const* after, size_t count) {
  return *node = &something, SUCCESS;
}
API Result hipGraphAddEventRecordNode(void** node, void* graph, void* const* after, size_t count, void* event) {
  return *node = &something, SUCCESS;
}
API Result hipDrvGraphAddMemcpyNode(void** node, void* graph, void* const* after, size_t count, const CopyNode* p,
                                    void* context) {
  if (p->height > 1 || p->depth > 1) return NOT_SUPPORTED;
  add_to_graph(graph, new_copy(side(&p->target), side(&p->source), p->width));
  return *node = &something, SUCCESS;
}
API Result hipGraphAddMemsetNode(void** node, void* graph, void* const* after, size_t count, const FillNode* p) {
  if (p->height > 1) return NOT_SUPPORTED;
  add_to_graph(graph, new_fill(p->target, p->value, p->width, p->width * p->count));
  return *node = &something, SUCCESS;
}
API Result hipGraphAddKernelNode(void** node, void* graph, void* const* after, size_t count, const KernelNode* p) {
  uint32_t grid[] = {p->grid.x, p->grid.y, p->grid.z}, block[] = {p->block.x, p->block.y, p->block.z};
  add_to_graph(graph, new_launch(p->function, grid, block, p->shared, p->parameters));
  return *node = &something, SUCCESS;
}

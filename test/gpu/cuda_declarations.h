#pragma once

// What LibTorch's headers name of CUDA's and NCCL's, in place of these, so that
// libaccel_nccl is compiled without them, too. Nothing is linked: values and
// layouts mean nothing.

#include <cstddef>

// ---- The CUDA runtime


#define CUDART_VERSION 13000

enum cudaError { cudaSuccess, cudaErrorNotReady };
using cudaError_t = cudaError;
enum cudaMemcpyKind { cudaMemcpyHostToHost };
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal, cudaStreamCaptureModeRelaxed };
enum cudaStreamCaptureStatus {
  cudaStreamCaptureStatusNone,
  cudaStreamCaptureStatusActive,
  cudaStreamCaptureStatusInvalidated
};
enum : unsigned int {
  cudaEventDefault,
  cudaEventDisableTiming,
  cudaEventInterprocess,
  cudaEventRecordDefault,
  cudaEventRecordExternal,
  cudaEventWaitDefault,
  cudaEventWaitExternal
};
struct CUuuid_st {
  char bytes[16];
};
struct cudaDeviceProp {
  CUuuid_st uuid;
};
struct cudaIpcEventHandle_t {};
using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;

const char* cudaGetErrorString(cudaError_t);
cudaError_t cudaGetLastError();
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaDeviceGetStreamPriorityRange(int*, int*);
cudaError_t cudaMemGetInfo(size_t*, size_t*);
cudaError_t cudaMemcpyAsync(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t);
cudaError_t cudaStreamGetPriority(cudaStream_t, int*);
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus*);
cudaError_t cudaStreamQuery(cudaStream_t);
cudaError_t cudaStreamSynchronize(cudaStream_t);
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned int = 0);
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t*, unsigned int);
cudaError_t cudaEventDestroy(cudaEvent_t);
cudaError_t cudaEventElapsedTime(float*, cudaEvent_t, cudaEvent_t);
cudaError_t cudaEventQuery(cudaEvent_t);
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t);
cudaError_t cudaEventRecordWithFlags(cudaEvent_t, cudaStream_t, unsigned int);
cudaError_t cudaEventSynchronize(cudaEvent_t);
cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t*, cudaEvent_t);
cudaError_t cudaIpcOpenEventHandle(cudaEvent_t*, cudaIpcEventHandle_t);

// ---- Libraries whose handles LibTorch's headers pass on

using cublasHandle_t = struct cublasContext*;
enum cublasStatus_t { CUBLAS_STATUS_SUCCESS };
using cublasLtHandle_t = struct cublasLtContext*;
using cusparseHandle_t = struct cusparseContext*;
enum cusparseStatus_t { CUSPARSE_STATUS_SUCCESS };
using cusolverDnHandle_t = struct cusolverDnContext*;
enum cusolverStatus_t { CUSOLVER_STATUS_SUCCESS };

// ---- NCCL

#define NCCL_MAJOR 2
#define NCCL_MINOR 28
#define NCCL_PATCH 9
#define NCCL_VERSION(major, minor, patch) ((major) * 10000 + (minor) * 100 + (patch))
#define NCCL_VERSION_CODE NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH)
#define NCCL_SPLIT_NOCOLOR -1
#define NCCL_UNIQUE_ID_BYTES 128
#define NCCL_CONFIG_INITIALIZER {0}

struct ncclUniqueId {
  char internal[NCCL_UNIQUE_ID_BYTES];
};
struct ncclConfig_t {
  int blocking;
};
using ncclComm_t = struct ncclComm*;
enum ncclResult_t { ncclSuccess, ncclRemoteError };
enum ncclRedOp_t { ncclSum };
enum ncclDataType_t {
  ncclInt8,
  ncclUint8,
  ncclInt32,
  ncclInt64,
  ncclHalf,
  ncclFloat,
  ncclDouble,
  ncclBfloat16,
  ncclFloat8e4m3,
  ncclFloat8e5m2
};
ncclResult_t ncclRedOpDestroy(ncclRedOp_t, ncclComm_t);

/* SPDX-License-Identifier: MIT */
/* What a status means. */
#include <errno.h>

#include "impl.h"

static const struct status_info {
	uint16_t code;
	int err;
	const char *name;
} table[] = {
	{ GKV_SC_SUCCESS, 0, "Success" },
	{ GKV_SC_INVALID_OPCODE, EOPNOTSUPP, "Invalid Command Opcode" },
	{ GKV_SC_INVALID_FIELD, EINVAL, "Invalid Field in Command" },
	{ GKV_SC_CID_CONFLICT, EINVAL, "Command ID Conflict" },
	{ GKV_SC_DATA_TRANSFER, EFAULT, "Data Transfer Error" },
	{ GKV_STATUS(0, 0x05), EIO, "Commands Aborted due to Power Loss Notification" },
	{ GKV_SC_INTERNAL, EIO, "Internal Error" },
	{ GKV_SC_ABORT_REQUESTED, ECANCELED, "Command Abort Requested" },
	{ GKV_SC_ABORTED_SQ_DELETION, ECANCELED, "Command Aborted due to SQ Deletion" },
	{ GKV_SC_INVALID_NS, ENODEV, "Invalid Namespace or Format" },
	{ GKV_STATUS(0, 0x0c), EINVAL, "Command Sequence Error" },
	{ GKV_SC_SGL_SEGMENT, EINVAL, "Invalid SGL Segment Descriptor" },
	{ GKV_SC_SGL_COUNT, EINVAL, "Invalid Number of SGL Descriptors" },
	{ GKV_SC_SGL_LENGTH, EINVAL, "Data SGL Length Invalid" },
	{ GKV_SC_SGL_TYPE, EINVAL, "SGL Descriptor Type Invalid" },
	{ GKV_SC_INVALID_CMB, EINVAL, "Invalid Use of Controller Memory Buffer" },
	{ GKV_SC_PRP_OFFSET, EINVAL, "PRP Offset Invalid" },
	{ GKV_SC_OPERATION_DENIED, EPERM, "Operation Denied" },
	{ GKV_STATUS(0, 0x16), EINVAL, "SGL Offset Invalid" },
	{ GKV_STATUS(0, 0x1e), EINVAL, "SGL Data Block Granularity Invalid" },
	{ GKV_SC_WRITE_PROTECTED, EROFS, "Namespace is Write Protected" },
	{ GKV_SC_INTERRUPTED, EAGAIN, "Command Interrupted" },
	{ GKV_SC_TRANSIENT, EAGAIN, "Transient Transport Error" },
	{ GKV_SC_CAPACITY, ENOSPC, "Capacity Exceeded" },
	{ GKV_SC_NS_NOT_READY, EBUSY, "Namespace Not Ready" },
	{ GKV_STATUS(0, 0x83), EACCES, "Reservation Conflict" },
	{ GKV_STATUS(0, 0x84), EINPROGRESS, "Format In Progress" },
	{ GKV_SC_VALUE_SIZE, EFBIG, "Invalid Value Size" },
	{ GKV_SC_KEY_SIZE, EINVAL, "Invalid Key Size" },
	{ GKV_SC_KEY_NOT_FOUND, ENOENT, "KV Key Does Not Exist" },
	{ GKV_SC_UNRECOVERED, EIO, "Unrecovered Error" },
	{ GKV_SC_KEY_EXISTS, EEXIST, "Key Exists" },
	{ GKV_SC_INVALID_QID, EINVAL, "Invalid Queue Identifier" },
	{ GKV_SC_INVALID_QSIZE, EINVAL, "Invalid Queue Size" },
	{ GKV_SC_ABORT_LIMIT, EAGAIN, "Abort Command Limit Exceeded" },
	{ GKV_SC_AER_LIMIT, EAGAIN, "Asynchronous Event Request Limit Exceeded" },
	{ GKV_SC_INVALID_LOG_PAGE, EINVAL, "Invalid Log Page" },
	{ GKV_SC_FEAT_NOT_SAVEABLE, EINVAL, "Feature Identifier Not Saveable" },
	{ GKV_SC_FEAT_NOT_CHANGEABLE, EPERM, "Feature Not Changeable" },
	{ GKV_SC_FEAT_NOT_NS, EINVAL, "Feature Not Namespace Specific" },
	{ GKV_SC_IOCS_COMBINATION, EINVAL, "I/O Command Set Combination Rejected" },
	{ GKV_SC_INVALID_IOCS, EINVAL, "Invalid I/O Command Set" },
	{ GKV_STATUS(1, 0x82), EROFS, "Attempted Write to Read Only Range" },
	{ GKV_SC_WRITE_FAULT, EIO, "Write Fault" },
	{ GKV_STATUS(2, 0x81), EIO, "Unrecovered Read Error" },
	{ GKV_SC_ACCESS_DENIED, EACCES, "Access Denied" },
	{ GKV_STATUS(3, 0x00), EIO, "Internal Path Error" },
	{ GKV_SC_HOST_PATH, ENOTCONN, "Host Pathing Error" },
	{ GKV_SC_HOST_ABORTED, ETIMEDOUT, "Command Aborted By Host" },
};

static const struct status_info *find(uint16_t status)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (table[i].code == GKV_STATUS_CODE(status))
			return &table[i];
	return NULL;
}

const char *gkv_status_name(uint16_t status)
{
	const struct status_info *s = find(status);

	return s ? s->name : "Unknown Status";
}

int gkv_status_errno(uint16_t status)
{
	const struct status_info *s = find(status);

	return s ? -s->err : -EIO;
}

int gkv_status_retry(uint16_t status)
{
	return GKV_STATUS_CODE(status) != GKV_SC_SUCCESS && !(status & GKV_DNR);
}

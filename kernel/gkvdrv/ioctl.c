// SPDX-License-Identifier: GPL-2.0-only
/*
 * Arguments of extensible ioctls: size first, unknown tails must be zero, reasons and
 * descriptors go back last.
 */
#include <linux/file.h>
#include <linux/minmax.h>
#include <linux/uaccess.h>

#include "gkvdrv.h"

int gkv_call_give(struct gkv_call *call, struct file *file)
{
	int fd;

	if (IS_ERR(file))
		return PTR_ERR(file);
	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0) {
		fput(file);
		return fd;
	}
	call->new_fd = fd;
	call->new_file = file;
	return 0;
}

static int copy_reason(struct gkv_call *call)
{
	struct gkvdrv_head *head = &call->arg.head;
	size_t len = strlen(call->why.text) + 1;

	head->reason = call->why.reason;
	if (!call->why.reason || !head->text || !head->text_len)
		return 0;
	if (len > head->text_len) {
		len = head->text_len;
		call->why.text[len - 1] = '\0';
	}
	return copy_to_user(u64_to_user_ptr(head->text), call->why.text, len) ? -EFAULT : 0;
}

static int clear_reason(struct gkv_call *call)
{
	struct gkvdrv_head *head = &call->arg.head;

	if (!head->text || !head->text_len)
		return 0;
	return put_user('\0', (char __user *)u64_to_user_ptr(head->text));
}

static int run(const struct gkv_ioctl *op, struct gkv_call *call, void __user *uarg, u32 size)
{
	int ret = copy_struct_from_user(&call->arg, op->size, uarg, size);

	if (ret)
		return ret;
	if (call->arg.head.flags)
		return -EOPNOTSUPP;
	/* What cannot be answered is not done. */
	if (put_user(0, &((struct gkvdrv_head __user *)uarg)->reason) || clear_reason(call))
		return -EFAULT;
	ret = op->fn(call);
	/* What the caller sees of a refusal is the reason; of a success, everything. */
	if (copy_reason(call) || copy_to_user(uarg, &call->arg, min(size, op->size)))
		ret = -EFAULT;
	if (!call->new_file)
		return ret;
	if (ret) {
		put_unused_fd(call->new_fd);
		fput(call->new_file);
	} else {
		fd_install(call->new_fd, call->new_file);
	}
	return ret;
}

long gkv_ioctl_run(const struct gkv_ioctl *table, size_t n, struct file *file, unsigned int cmd,
		   unsigned long uarg)
{
	void __user *arg = (void __user *)uarg;
	struct gkv_call *call;
	u32 size;
	long ret;

	for (size_t i = 0; i < n; i++) {
		if (table[i].cmd != cmd)
			continue;
		if (get_user(size, (u32 __user *)arg))
			return -EFAULT;
		if (size < table[i].min_size)
			return -EINVAL;
		/* No struct will ever be that large. */
		if (size > PAGE_SIZE)
			return -E2BIG;
		call = kzalloc_obj(*call, GFP_KERNEL);
		if (!call)
			return -ENOMEM;
		call->file = file;
		ret = run(&table[i], call, arg, size);
		kfree(call);
		return ret;
	}
	return -ENOTTY;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * What one user has of gkvdrv, over all its processes, and RLIMIT_MEMLOCK.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/sched/signal.h>
#include <linux/sched/user.h>

#include "gkvdrv.h"

struct gkv_user {
	struct list_head node;
	kuid_t uid;
	u32 objects;
	u64 bytes;
};

struct gkv_charge {
	struct gkv_user *user;
	u64 bytes;
	struct user_struct *locker;
	unsigned long pages;
};

static DEFINE_MUTEX(users_lock);	/* the list and all in it */
static LIST_HEAD(users);

static struct gkv_user *find(kuid_t uid)
{
	struct gkv_user *u;

	list_for_each_entry(u, &users, node) {
		if (uid_eq(u->uid, uid))
			return u;
	}
	return NULL;
}

static void drop(struct gkv_user *u, u64 bytes)
{
	mutex_lock(&users_lock);
	u->bytes -= bytes;
	if (!--u->objects) {
		list_del(&u->node);
		kfree(u);
	}
	mutex_unlock(&users_lock);
}

static struct gkv_user *take(u64 bytes, struct gkv_why *why)
{
	kuid_t uid = current_uid();
	u64 max_bytes = READ_ONCE(gkv_max_user_bytes);
	u32 max = READ_ONCE(gkv_max_user_objects);
	struct gkv_user *u;
	int ret = 0;

	mutex_lock(&users_lock);
	u = find(uid);
	if (!u) {
		u = kzalloc_obj(*u, GFP_KERNEL);
		if (!u) {
			mutex_unlock(&users_lock);
			return ERR_PTR(-ENOMEM);
		}
		u->uid = uid;
		list_add(&u->node, &users);
	}
	if (u->objects >= max)
		ret = gkv_refuse(why, -ENOSPC, GKVDRV_WHY_LIMIT,
				 "user has %u pieces of memory, the limit is %u (max_user_objects)",
				 u->objects, max);
	else if (bytes > max_bytes || u->bytes > max_bytes - bytes)
		ret = gkv_refuse(why, -ENOSPC, GKVDRV_WHY_LIMIT,
				 "user has %llu bytes of VRAM and asks for %llu, the limit is %llu (max_user_bytes)",
				 u->bytes, bytes, max_bytes);
	if (!ret) {
		u->objects++;
		u->bytes += bytes;
	} else if (!u->objects) {
		list_del(&u->node);
		kfree(u);
	}
	mutex_unlock(&users_lock);
	return ret ? ERR_PTR(ret) : u;
}

/* As io_uring does it: by user, against the limit of the process that asks. */
static int lock_pages(struct gkv_charge *c, unsigned long pages, struct gkv_why *why)
{
	unsigned long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT, old, new;
	struct user_struct *locker;

	if (!pages || capable(CAP_IPC_LOCK))
		return 0;
	locker = get_uid(current_user());
	old = atomic_long_read(&locker->locked_vm);
	do {
		new = old + pages;
		if (new > limit || new < old) {
			free_uid(locker);
			return gkv_refuse(why, -ENOMEM, GKVDRV_WHY_MEMLOCK,
					  "user has %lu pages locked and asks for %lu, RLIMIT_MEMLOCK is %lu",
					  old, pages, limit);
		}
	} while (!atomic_long_try_cmpxchg(&locker->locked_vm, &old, new));
	c->locker = locker;
	c->pages = pages;
	return 0;
}

struct gkv_charge *gkv_charge(u64 vram, unsigned long host, struct gkv_why *why)
{
	struct gkv_charge *c = kzalloc_obj(*c, GFP_KERNEL);
	int ret;

	if (!c)
		return ERR_PTR(-ENOMEM);
	c->bytes = vram;
	c->user = take(vram, why);
	if (IS_ERR(c->user)) {
		ret = PTR_ERR(c->user);
		goto free;
	}
	ret = lock_pages(c, host, why);
	if (!ret)
		return c;
	drop(c->user, vram);
free:
	kfree(c);
	return ERR_PTR(ret);
}

void gkv_uncharge(struct gkv_charge *c)
{
	if (!c)
		return;
	drop(c->user, c->bytes);
	if (c->locker) {
		atomic_long_sub(c->pages, &c->locker->locked_vm);
		free_uid(c->locker);
	}
	kfree(c);
}

void gkv_user_usage(u32 *objects, u64 *bytes)
{
	struct gkv_user *u;

	mutex_lock(&users_lock);
	u = find(current_uid());
	*objects = u ? u->objects : 0;
	*bytes = u ? u->bytes : 0;
	mutex_unlock(&users_lock);
}

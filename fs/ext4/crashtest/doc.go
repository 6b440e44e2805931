// Package crashtest cuts the power. A random workload runs over a recording
// device next to a model of what was promised; then, for each prefix of the
// record, with unflushed writes kept, dropped, reordered or torn, the image is
// mounted (which replays the journal), compared with the model, unmounted and
// checked by e2fsck.
//
// In every other round somebody syncs next to the workload, so that there are
// commits between any two transactions. An operation of the model is one call of
// the file system: what needs two of them, as creating a file and writing to it,
// are two operations, and a crash may come between.
//
// What is checked in each state:
//
//   - the tree - names, kinds, link counts, symlink targets, xattrs - is the
//     model's tree after some operation, not older than what was synced;
//
//   - each 8-byte word of each file was written there by the workload, into
//     that file, not earlier than the file's last fsync: no lost writes, and
//     no block shows another (deleted) file's data;
//
//   - with data=journal the content of all files is that of one moment, the
//     tree's;
//
//   - sizes lie between those of the versions that are allowed;
//
//   - e2fsck -fn finds nothing;
//
//   - in a sample, e2fsck's own replay and the kernel's give the same tree as
//     ours, content included.
//
// The kernel refuses some states with a torn asynchronous commit; these are counted,
// and no failure.
//
// Writes are torn at sectors of 512 bytes, that of the superblock, too, which
// neither the kernel nor e2fsck survives.
//
// A state counts if no other one of the run had the same image.
//
//	CRASH_STATES   how many states; default 400, `make crash` takes 10000
//	CRASH_SEED     the seed; default: the clock, printed
//	CRASH_KIND     only the kind of file system with this index in kinds
//	CRASH_ORACLES  how many states e2fsck and the kernel replay too; default 20,
//	               `make crash` takes 600
package crashtest

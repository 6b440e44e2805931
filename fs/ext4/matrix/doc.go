// Package matrix holds the test over all kinds of images: each row is a line of
// mke2fs. A fixed workload runs on it, here and in the kernel, and each side
// has to see what the other one made.
package matrix

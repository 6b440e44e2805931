// Package journal is jbd2: a log of block images that makes groups of metadata
// changes atomic and durable.
package journal

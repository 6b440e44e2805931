// Command extfused mounts ext4 images through FUSE, formats and describes them.
package main

import (
	"os"

	"extfused/cmd/extfused/command"
)

func main() {
	os.Exit(command.Main(os.Args, os.Stdout, os.Stderr))
}

// pause holds the namespaces of a pod until it is told to end, and reaps what is left to it; stories also run it as
// their workload. It listens nowhere and logs nothing.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	told := make(chan os.Signal, 8)
	signal.Notify(told, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for sent := range told {
		if sent != syscall.SIGCHLD {
			return
		}
		for {
			if child, _ := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); child <= 0 {
				break
			}
		}
	}
}

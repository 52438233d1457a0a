// Command oracle judges saved cases with kube-scheduler's own in-tree plugins.
//
// It reads one case a line and writes one verdict a line, in the format of docs/evaluate.md, so that what it says can
// be compared with what `homeport evaluate` says. It is built inside the throw-away module of one Kubernetes release
// (tests/conformance/oracle.py) and speaks for exactly that release, with its default feature gates.
//
// With -validate it says instead, of each case, which objects the API server would refuse.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"

	"k8s.io/klog/v2"
)

// testCase is one line in. Objects and the pod stay raw until their kind is known.
type testCase struct {
	Name    string            `json:"name"`
	Config  json.RawMessage   `json:"config"`
	Objects []json.RawMessage `json:"objects"`
	Pod     json.RawMessage   `json:"pod"`
	Preempt *struct {
		Nodes []string `json:"nodes"`
	} `json:"preempt"`
	// DryRun is asked of histories only.
	DryRun *dryRun `json:"dryRun"`
}

// verdict is one line out. Keys come out sorted, as encoding/json writes maps.
type verdict map[string]any

func main() {
	validate := flag.Bool("validate", false, "validate the objects of each case instead of judging it")
	flag.Parse()
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	say := validated
	if !*validate {
		court, err := newCourt()
		if err != nil {
			fmt.Fprintln(os.Stderr, "oracle:", err)
			os.Exit(1)
		}
		say = func(line []byte) verdict { return answer(court, line) }
	}
	if err := serve(os.Stdin, os.Stdout, say); err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(1)
	}
}

// serve answers each line before it reads the next.
func serve(in io.Reader, out io.Writer, say func([]byte) verdict) error {
	reader := bufio.NewReaderSize(in, 1<<20)
	writer := bufio.NewWriterSize(out, 1<<20)
	encoder := json.NewEncoder(writer)
	encoder.SetEscapeHTML(false)
	for {
		line, err := reader.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			if err := encoder.Encode(say(line)); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return writer.Flush()
		}
		if err != nil {
			return err
		}
	}
}

// answer is the verdict on a line. A case that cannot be judged gives an error, also when a plugin panics.
func answer(court *court, line []byte) (found verdict) {
	var it testCase
	defer func() {
		if cause := recover(); cause != nil {
			found = verdict{"name": it.Name, "error": fmt.Sprintf("panic: %v", cause)}
		}
	}()
	if err := json.Unmarshal(line, &it); err != nil {
		return verdict{"name": it.Name, "error": err.Error()}
	}
	found, err := court.judge(&it)
	if err != nil {
		return verdict{"name": it.Name, "error": err.Error()}
	}
	found["name"] = it.Name
	return found
}

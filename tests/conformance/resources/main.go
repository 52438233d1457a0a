// Command resources says what kube-scheduler's own code makes of quantities, of what pods request, of a node with pods on
// it, and of patterns.
//
// It reads one question a line and writes one answer a line (tests/conformance/resources.py has the format). It is
// built inside the throw-away module of one Kubernetes release and speaks for exactly that release, with its default
// feature gates.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"
)

// question has one of its fields.
type question struct {
	Quantity json.RawMessage   `json:"quantity"`
	Sum      []json.RawMessage `json:"sum"`
	Node     json.RawMessage   `json:"node"`
	Pods     []json.RawMessage `json:"pods"`
	Ports    []port            `json:"ports"`
	Pattern  *string           `json:"pattern"`
	Texts    []string          `json:"texts"`
}

type port struct {
	IP       string `json:"ip"`
	Protocol string `json:"protocol"`
	Port     int32  `json:"port"`
}

type answer map[string]any

func main() {
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "resources:", err)
		os.Exit(1)
	}
}

func serve(in io.Reader, out io.Writer) error {
	decoder := json.NewDecoder(in)
	writer := bufio.NewWriter(out)
	encoder := json.NewEncoder(writer)
	for {
		var asked question
		if err := decoder.Decode(&asked); err == io.EOF {
			return writer.Flush()
		} else if err != nil {
			return err
		}
		if err := encoder.Encode(said(&asked)); err != nil {
			return err
		}
	}
}

func said(asked *question) answer {
	switch {
	case asked.Quantity != nil:
		return parsed(asked.Quantity)
	case asked.Sum != nil:
		return added(asked.Sum)
	case asked.Pattern != nil:
		return searched(*asked.Pattern, asked.Texts)
	default:
		return aggregated(asked)
	}
}

func parsed(raw json.RawMessage) answer {
	var found resource.Quantity
	if err := found.UnmarshalJSON(raw); err != nil {
		return answer{"error": true}
	}
	return values(found)
}

func values(found resource.Quantity) answer {
	return answer{"value": found.Value(), "milli": found.MilliValue()}
}

// added is the sum, as requests are summed; and of the first two, whether the first is more.
func added(raw []json.RawMessage) answer {
	found := make([]resource.Quantity, len(raw))
	for index, each := range raw {
		if err := found[index].UnmarshalJSON(each); err != nil {
			return answer{"error": true}
		}
	}
	more := found[0].Cmp(found[1]) > 0
	sum := found[0].DeepCopy()
	for _, each := range found[1:] {
		sum.Add(each)
	}
	told := values(sum)
	told["more"] = more
	return told
}

// searched says in which texts the pattern is found, as matches() of CEL does.
func searched(pattern string, texts []string) answer {
	compiled, err := regexp.Compile(pattern)
	if err != nil {
		return answer{"error": true}
	}
	found := []bool{}
	for _, each := range texts {
		found = append(found, compiled.MatchString(each))
	}
	return answer{"found": found}
}

func aggregated(asked *question) answer {
	node := &v1.Node{}
	if err := json.Unmarshal(asked.Node, node); err != nil {
		return answer{"error": err.Error()}
	}
	info := framework.NewNodeInfo()
	info.SetNode(node)
	requests := []any{}
	for _, raw := range asked.Pods {
		pod := &v1.Pod{}
		if err := json.Unmarshal(raw, pod); err != nil {
			return answer{"error": err.Error()}
		}
		requests = append(requests, incoming(pod))
		info.AddPod(pod)
	}
	conflicts := []bool{}
	for _, each := range asked.Ports {
		conflicts = append(conflicts, info.UsedPorts.CheckConflict(each.IP, each.Protocol, each.Port))
	}
	return answer{
		"allocatable":      listed(info.Allocatable),
		"requested":        listed(info.Requested),
		"nonZeroRequested": listed(info.NonZeroRequested),
		"ports":            ports(info.UsedPorts),
		"conflicts":        conflicts,
		"incoming":         requests,
	}
}

// incoming is what NodeResourcesFit takes a waiting pod to ask for: its spec, whatever its status says; and, to compare
// nodes with, its containers alone, with defaults for what they do not say.
func incoming(pod *v1.Pod) answer {
	found := &framework.Resource{}
	found.SetMaxResource(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}))
	nonZero := &framework.Resource{}
	nonZero.Add(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{
		SkipPodLevelResources: true,
		NonMissingContainerRequests: v1.ResourceList{
			v1.ResourceCPU:    *resource.NewMilliQuantity(schedutil.DefaultMilliCPURequest, resource.DecimalSI),
			v1.ResourceMemory: *resource.NewQuantity(schedutil.DefaultMemoryRequest, resource.DecimalSI),
		},
	}))
	return answer{"requests": listed(found), "nonZero": listed(nonZero)}
}

// listed leaves out what is zero.
func listed(found *framework.Resource) map[string]int64 {
	told := map[string]int64{}
	add := func(name string, amount int64) {
		if amount != 0 {
			told[name] = amount
		}
	}
	add("cpu", found.MilliCPU)
	add("memory", found.Memory)
	add("ephemeral-storage", found.EphemeralStorage)
	add("pods", int64(found.AllowedPodNumber))
	for name, amount := range found.ScalarResources {
		add(string(name), amount)
	}
	return told
}

func ports(used fwk.HostPortInfo) []port {
	told := []port{}
	for ip, each := range used {
		for it := range each {
			told = append(told, port{ip, it.Protocol, it.Port})
		}
	}
	slices.SortFunc(told, func(one, other port) int {
		return cmp.Or(cmp.Compare(one.IP, other.IP), cmp.Compare(one.Protocol, other.Protocol), cmp.Compare(one.Port, other.Port))
	})
	return told
}

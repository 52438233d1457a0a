// Reads cases and writes what SelectorSpread scores every node: raw, and normalised over all of them.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/selectorspread"
)

type testCase struct {
	Name    string            `json:"name"`
	Objects []json.RawMessage `json:"objects"`
	Pod     json.RawMessage   `json:"pod"`
}

// world is all of the scheduler that the plugin asks for.
type world struct {
	framework.Handle
	factory informers.SharedInformerFactory
	names   []string
	nodes   map[string]*framework.NodeInfo
}

func (it *world) SharedInformerFactory() informers.SharedInformerFactory   { return it.factory }
func (it *world) SnapshotSharedLister() framework.SharedLister             { return it }
func (it *world) NodeInfos() framework.NodeInfoLister                      { return it }
func (it *world) StorageInfos() framework.StorageInfoLister                { return nil }
func (it *world) HavePodsWithAffinityList() ([]*framework.NodeInfo, error) { return nil, nil }
func (it *world) HavePodsWithRequiredAntiAffinityList() ([]*framework.NodeInfo, error) {
	return nil, nil
}

func (it *world) List() ([]*framework.NodeInfo, error) {
	found := []*framework.NodeInfo{}
	for _, name := range it.names {
		found = append(found, it.nodes[name])
	}
	return found, nil
}

func (it *world) Get(name string) (*framework.NodeInfo, error) {
	if found, ok := it.nodes[name]; ok {
		return found, nil
	}
	return nil, fmt.Errorf("no node %q", name)
}

func newWorld(raw []json.RawMessage) (*world, error) {
	it := &world{factory: informers.NewSharedInformerFactory(nil, 0), nodes: map[string]*framework.NodeInfo{}}
	core, apps, bound := it.factory.Core().V1(), it.factory.Apps().V1(), []*v1.Pod{}
	for index, each := range raw {
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(each, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("objects[%d]: %w", index, err)
		}
		switch object := object.(type) {
		case *v1.Node:
			it.nodes[object.Name] = framework.NewNodeInfo()
			it.nodes[object.Name].SetNode(object)
			it.names = append(it.names, object.Name)
		case *v1.Pod:
			if object.Status.Phase != v1.PodSucceeded && object.Status.Phase != v1.PodFailed {
				bound = append(bound, object)
			}
		case *v1.Service:
			err = core.Services().Informer().GetIndexer().Add(object)
		case *v1.ReplicationController:
			err = core.ReplicationControllers().Informer().GetIndexer().Add(object)
		case *appsv1.ReplicaSet:
			err = apps.ReplicaSets().Informer().GetIndexer().Add(object)
		case *appsv1.StatefulSet:
			err = apps.StatefulSets().Informer().GetIndexer().Add(object)
		}
		if err != nil {
			return nil, fmt.Errorf("objects[%d]: %w", index, err)
		}
	}
	for _, pod := range bound {
		if node, ok := it.nodes[pod.Spec.NodeName]; ok {
			node.AddPod(pod)
		}
	}
	return it, nil
}

func judge(ctx context.Context, line []byte) (map[string]any, error) {
	var asked testCase
	if err := json.Unmarshal(line, &asked); err != nil {
		return nil, err
	}
	it, err := newWorld(asked.Objects)
	if err != nil {
		return nil, err
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(asked.Pod, nil, nil)
	if err != nil {
		return nil, err
	}
	made, err := selectorspread.New(nil, it)
	if err != nil {
		return nil, err
	}
	pod, plugin, state := object.(*v1.Pod), made.(*selectorspread.SelectorSpread), framework.NewCycleState()
	if status := plugin.PreScore(ctx, state, pod, nil); !status.IsSuccess() {
		return nil, status.AsError()
	}
	raw, scores, list := map[string]int64{}, map[string]int64{}, framework.NodeScoreList{}
	for _, name := range it.names {
		score, status := plugin.Score(ctx, state, pod, name)
		if !status.IsSuccess() {
			return nil, status.AsError()
		}
		raw[name] = score
		list = append(list, framework.NodeScore{Name: name, Score: score})
	}
	if status := plugin.NormalizeScore(ctx, state, pod, list); !status.IsSuccess() {
		return nil, status.AsError()
	}
	for _, each := range list {
		scores[each.Name] = each.Score
	}
	return map[string]any{"name": asked.Name, "raw": raw, "score": scores}, nil
}

func main() {
	reader, writer := bufio.NewScanner(os.Stdin), bufio.NewWriter(os.Stdout)
	reader.Buffer(make([]byte, 1<<20), 1<<26)
	defer writer.Flush()
	encoder := json.NewEncoder(writer)
	for reader.Scan() {
		found, err := judge(context.Background(), reader.Bytes())
		if err != nil {
			found = map[string]any{"error": err.Error()}
		}
		if err := encoder.Encode(found); err != nil {
			panic(err)
		}
	}
	if err := reader.Err(); err != nil {
		panic(err)
	}
}

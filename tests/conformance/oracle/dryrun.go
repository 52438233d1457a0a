package main

import (
	"context"
	"fmt"

	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// dryRun are pods taken off one node and put back, in this order: what a preemption tries.
type dryRun struct {
	Node  string `json:"node"`
	Steps []struct {
		Remove string `json:"remove"`
		Add    string `json:"add"`
	} `json:"steps"`
}

// dryRun adds what Filter says about the node after each step, on a copy of node and state.
func (it *trial) dryRun(ctx context.Context, asked *dryRun, found verdict) error {
	said := []any{}
	found["dryRun"] = said
	if found["preFilter"].(map[string]any)["code"] != fwk.Success.String() {
		return nil
	}
	original, err := it.world.snapshot.NodeInfos().Get(asked.Node)
	if err != nil {
		return err
	}
	node, state := original.Snapshot(), it.state.Clone()
	pods := map[string]fwk.PodInfo{}
	for _, pod := range original.GetPods() {
		pods[pod.GetPod().Namespace+"/"+pod.GetPod().Name] = pod
	}
	for _, step := range asked.Steps {
		pod, ok := pods[step.Remove+step.Add]
		if !ok {
			return fmt.Errorf("dryRun: %s is not on node %s", step.Remove+step.Add, asked.Node)
		}
		status := fwk.NewStatus(fwk.Success)
		if step.Remove != "" {
			if err := node.RemovePod(klog.FromContext(ctx), pod.GetPod()); err != nil {
				return err
			}
			status = it.framework.RunPreFilterExtensionRemovePod(ctx, state, it.pod, pod, node)
		} else {
			node.AddPodInfo(pod)
			status = it.framework.RunPreFilterExtensionAddPod(ctx, state, it.pod, pod, node)
		}
		if !status.IsSuccess() {
			return status.AsError()
		}
		said = append(said, shown(it.framework.RunFilterPluginsWithNominatedPods(ctx, state, it.pod, node)))
	}
	found["dryRun"] = said
	return nil
}

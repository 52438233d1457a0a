package main

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/apps"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	appsvalidation "k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/policy"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	policyvalidation "k8s.io/kubernetes/pkg/apis/policy/validation"
	"k8s.io/kubernetes/pkg/apis/resource"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	resourcevalidation "k8s.io/kubernetes/pkg/apis/resource/validation"
)

// validated says what the API server would have against the objects of a case. Kinds not known here are an error too.
func validated(line []byte) verdict {
	var it testCase
	if err := json.Unmarshal(line, &it); err != nil {
		return verdict{"name": it.Name, "error": err.Error()}
	}
	wrong := []string{}
	for index, raw := range append(it.Objects, it.Pod) {
		object, _, err := legacyscheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("objects[%d]: %v", index, err))
			continue
		}
		for _, each := range mistakes(object) {
			wrong = append(wrong, fmt.Sprintf("objects[%d]: %v", index, each))
		}
	}
	return verdict{"name": it.Name, "invalid": wrong}
}

// mistakes defaults an object and validates it as on creation.
func mistakes(object runtime.Object) field.ErrorList {
	legacyscheme.Scheme.Default(object)
	internal, err := legacyscheme.Scheme.ConvertToVersion(object, runtime.InternalGroupVersioner)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	switch it := internal.(type) {
	case *core.Pod:
		return validation.ValidatePodCreate(it, podutil.GetValidationOptionsFromPodSpecAndMeta(&it.Spec, nil, &it.ObjectMeta, nil))
	case *core.Node:
		return validation.ValidateNode(it)
	case *core.Namespace:
		return validation.ValidateNamespace(it)
	case *core.Service:
		return validation.ValidateServiceCreate(it)
	case *core.ReplicationController:
		return validation.ValidateReplicationController(it, podutil.GetValidationOptionsFromPodTemplate(it.Spec.Template, nil))
	case *apps.ReplicaSet:
		return appsvalidation.ValidateReplicaSet(it, podutil.GetValidationOptionsFromPodTemplate(&it.Spec.Template, nil))
	case *resource.ResourceClaim:
		return resourcevalidation.ValidateResourceClaim(it)
	case *resource.ResourceSlice:
		return resourcevalidation.ValidateResourceSlice(it)
	case *resource.DeviceClass:
		return resourcevalidation.ValidateDeviceClass(it)
	case *apps.StatefulSet:
		return appsvalidation.ValidateStatefulSet(it, podutil.GetValidationOptionsFromPodTemplate(&it.Spec.Template, nil))
	case *policy.PodDisruptionBudget:
		return policyvalidation.ValidatePodDisruptionBudget(it, policyvalidation.PodDisruptionBudgetValidationOptions{})
	}
	if found, known := storageMistakes(internal); known {
		return found
	}
	return field.ErrorList{field.InternalError(nil, fmt.Errorf("%T is not validated here", internal))}
}

{{/* Names of objects: the release's. */}}
{{- define "quell.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{/* Names of objects that belong to no namespace. */}}
{{- define "quell.clusterName" -}}
{{- printf "%s-nodes-%s" (include "quell.name" .) .Release.Namespace | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "quell.selector" -}}
app.kubernetes.io/name: quell
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* What is scaled, from scaler.target, as group, resource and name. */}}
{{- define "quell.target" -}}
{{- $target := .Values.config.scaler.target | required "config.scaler.target is missing: what is scaled, as in deployment/web" -}}
{{- $parts := splitn "/" 2 $target -}}
{{- $kind := trimSuffix "s" (lower $parts._0) -}}
{{- $known := dict "deployment" "apps" "statefulset" "apps" "replicaset" "apps" "replicationcontroller" "" -}}
{{- $long := splitn "." 3 $parts._0 -}}
{{- if not $parts._1 -}}
{{- fail (printf "config.scaler.target must be TYPE/NAME, as in deployment/web, is %q" $target) -}}
{{- else if hasKey $known $kind -}}
{{- dict "group" (get $known $kind) "resource" (printf "%ss" $kind) "name" $parts._1 | toYaml -}}
{{- else if $long._2 -}}
{{- dict "group" $long._2 "resource" $long._0 "name" $parts._1 | toYaml -}}
{{- else -}}
{{- fail (printf "config.scaler.target must be TYPE/NAME, as in deployment/web, or RESOURCE.VERSION.GROUP/NAME, is %q" $target) -}}
{{- end -}}
{{- end -}}

{{/* A container of the program. */}}
{{- define "quell.container" -}}
image: "{{ .Values.image.repository }}{{ with .Values.image.tag }}:{{ . }}{{ end }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
volumeMounts:
  - {name: config, mountPath: /etc/quell/quell.yaml, subPath: quell.yaml}
  - {name: data, mountPath: {{ .Values.config.data }}}
  {{- if .Values.secret }}
  - {name: secret, mountPath: /etc/quell/secrets, readOnly: true}
  {{- end }}
{{- end -}}

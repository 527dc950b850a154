{{/* Names of objects: the release's. */}}
{{- define "quell.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{/* Names of objects that belong to no namespace. */}}
{{- define "quell.clusterName" -}}
{{- printf "%s-nodes-%s" (include "quell.name" .) .Release.Namespace | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "quell.tokensName" -}}
{{- printf "%s-tokens-%s" (include "quell.name" .) .Release.Namespace | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "quell.agentsName" -}}
{{- printf "%s-agents-%s" (include "quell.name" .) .Release.Namespace | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The configuration of controller and balancer. Agents of pods reach the bus over the network. */}}
{{- define "quell.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- if ne $config.balancer.kind "builtin" -}}      {{- /* the defaults are those of Quell's own balancer */ -}}
{{- $_ := unset $config.balancer "listen" -}}
{{- if not (has $config.balancer.kind (list "envoy" "nginx" "reports")) -}}
{{- $_ := unset (default dict $config.balancer.health) "path" -}}
{{- end -}}
{{- if not $config.balancer.health -}}{{- $_ := unset $config.balancer "health" -}}{{- end -}}
{{- end -}}
{{- if .Values.agent.nodes -}}
{{- $_ := set $config.scaler "join" true -}}
{{- $_ := set $config.scaler "node_agents" (printf "%s/%s-agent" .Release.Namespace (include "quell.name" .)) -}}
{{- end -}}
{{- if and (include "quell.joins" .) (not (dig "url" "" (default dict $config.bus))) -}}
{{- $_ := set $config "bus" (merge (default dict $config.bus) (dict "listen" "0.0.0.0:4222")) -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* Not empty if agents join with the tokens of their pods. */}}
{{- define "quell.joins" -}}
{{- if or .Values.agent.nodes (eq (toString (dig "join" false .Values.config.scaler)) "true") -}}yes{{- end -}}
{{- end -}}

{{/* Not empty if agents reach the bus of the controller. */}}
{{- define "quell.bus" -}}
{{- if and (include "quell.joins" .) (not (dig "url" "" (default dict .Values.config.bus))) -}}
{{- regexFind "[0-9]+$" (dig "listen" "0.0.0.0:4222" (default dict .Values.config.bus)) -}}
{{- end -}}
{{- end -}}

{{/* The configuration of agents: what is the controller's own is left out. */}}
{{- define "quell.agentConfig" -}}
{{- $config := omit (include "quell.config" . | fromYaml) "listen" "keda" "bus" "data" "web_config" "otlp" -}}
{{- $port := include "quell.bus" . -}}
{{- $url := dig "url" "" (default dict .Values.config.bus) -}}
{{- if $port }}{{- $url = printf "%s://%s.%s:%s" (ternary "tls" "nats" (hasKey .Values.agent.bus "tls")) (include "quell.name" .) .Release.Namespace $port -}}{{- end -}}
{{- $_ := set $config "bus" (merge (deepCopy .Values.agent.bus) (dict "url" $url "proof" "kubernetes")) -}}
{{- $_ := set $config "data" "/var/lib/quell" -}}
{{- if not .Values.agent.nodes -}}
{{- $probe := merge (dict "listen" (printf ":%v" (default 9466 .Values.config.scaler.probe_port))) (default dict $config.probe) -}}
{{- $_ := set $config "probe" $probe -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* The port at which balancer or agents show metrics to other machines: empty if they show none, or only on their own. */}}
{{- define "quell.shown" -}}
{{- $address := toString (default "" .) -}}
{{- if not (regexMatch "^(127\\.|localhost:|\\[::1\\]:)" $address) -}}{{- regexFind "[0-9]+$" $address -}}{{- end -}}
{{- end -}}

{{/* Not empty if the metrics of controller and balancer need TLS or a log-in, and the values do not say which. */}}
{{- define "quell.closed" -}}
{{- if and .Values.config.web_config (not .Values.podMonitorEndpoint) -}}yes{{- end -}}
{{- end -}}

{{/* An endpoint of a PodMonitor: a port, and more keys if there are any. */}}
{{- define "quell.endpoint" -}}
{{- if .more -}}{{- merge (dict "port" .port) .more | toJson -}}{{- else -}}{port: {{ .port }}}{{- end -}}
{{- end -}}

{{- define "quell.selector" -}}
app.kubernetes.io/name: quell
app.kubernetes.io/instance: {{ .Release.Name | toYaml }}
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
